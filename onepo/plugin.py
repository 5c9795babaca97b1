"""The module that verl loads in every Ray process (``VERL_USE_EXTERNAL_MODULES=onepo.plugin``).

The only one with import side effects, and they are light: names and strings that verl resolves when they are used.
On a GPU there is nothing to register: dataset, reward manager, agent-loop manager and loss travel by reference in the
configuration, and the task runner imports the trainer.
"""

import os

import verl  # noqa: F401  unpickling one of our classes can import this module before anything has imported verl

if os.environ.get("VERL_PLATFORM") == "cpu":
    from onepo.backends.cpu import overrides, platform  # noqa: F401  the platform registers itself
    from onepo.backends.cpu.registration import register_rollout

    overrides.use_plain_gloo()
    overrides.use_quiet_ports()
    register_rollout()
