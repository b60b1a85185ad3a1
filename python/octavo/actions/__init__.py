"""Actions that change page sizes on this machine: settings, switches of runtimes, commands."""
