"""Whether a server could take a port, and who has it."""

import errno
import socket

import psutil

_ANY = ("0.0.0.0", "::")


def port_holder(host: str, port: int) -> str | None:
    """Who keeps a server from listening at ``host:port``, in words; None when the port is free.

    Connections that an ended server left behind do not count, as for the servers themselves (SO_REUSEADDR). A process
    of another user cannot be named.

    Raises:
        OSError: ``host`` is unknown or not of this machine, or the port is not allowed.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return _listener(address[0], port)
    return None


def listeners(port: int) -> set[int]:
    """The processes that listen at a port of this machine, as far as they can be seen."""
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid is not None
    }


def _listener(ip: str, port: int) -> str:
    for connection in psutil.net_connections("tcp"):
        here = connection.laddr
        if connection.status != psutil.CONN_LISTEN or here.port != port or connection.pid is None:
            continue
        if here.ip == ip or here.ip in _ANY or ip in _ANY:
            try:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
            except psutil.NoSuchProcess:
                break
    return "another process"
