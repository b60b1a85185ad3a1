"""The calibration of a processor: `octavo calibrate` measures it, `load_calibration` reads it."""

from octavo.calibration.file import (
    Calibration,
    MeasuredHost,
    Reach,
    Spread,
    default_path,
    load_calibration,
)

__all__ = [
    "Calibration",
    "MeasuredHost",
    "Reach",
    "Spread",
    "default_path",
    "load_calibration",
]
