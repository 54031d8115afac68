"""The starts that travel with the package, trained anew: python -m tests.making.start (minutes on one core, each)."""

import os
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from ratioscope.trainer import tasks
from ratioscope.trainer.model import warm_start
from ratioscope.trainer.settings.load import load_settings


def main() -> None:
    torch.set_num_threads(1)
    shipped = warm_start.SHIPPED
    for old in shipped.glob("*.safetensors"):
        old.unlink()
    for preset in ("on_policy", "counting"):  # one for each task
        config = load_settings(preset, ["evaluation_prompts=512"])
        task = tasks.make(config.task)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["RATIOSCOPE_CACHE"], warm_start.SHIPPED = folder, Path(folder)
            model, _ = warm_start.warm_started(config, task, lambda step, learned: print(f"{step:5d}  {learned:.3f}"))
        path = shipped / f"{warm_start.digest(config, task)}.safetensors"
        save_file(model.state_dict(), path)
        print(path, f"{path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
