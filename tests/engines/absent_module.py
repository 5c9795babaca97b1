"""Stands in for a module whose PyPI build needs CUDA to be imported: it has every name, and no name can be called.

SGLang imports ``sgl_kernel`` and ``torchvision`` on every device and calls neither for a text model on a CPU.
"""


class Absent:
    """A function, class or enumeration of the missing module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):  # so that Python sees an ordinary object
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._name} was called, and its module is a stand-in without functions")


__getattr__ = Absent(__name__).__getattr__
