"""The start that travels with the package, trained anew: python -m tests.making.start (two minutes on one core)."""

import os
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from ratioscope.trainer import tasks
from ratioscope.trainer.model import warm_start
from ratioscope.trainer.settings.config import TrainConfig


def main() -> None:
    torch.set_num_threads(1)
    config, shipped = TrainConfig(), warm_start.SHIPPED
    task = tasks.make(config.task)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RATIOSCOPE_CACHE"], warm_start.SHIPPED = folder, Path(folder)
        model, _ = warm_start.warm_started(config, task, lambda step, learned: print(f"{step:5d}  {learned:.3f}"))
    for old in shipped.glob("*.safetensors"):
        old.unlink()
    path = shipped / f"{warm_start.digest(config, task)}.safetensors"
    save_file(model.state_dict(), path)
    print(path, f"{path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
