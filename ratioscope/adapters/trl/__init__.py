"""TRL: records a GRPOTrainer's, an RLOOTrainer's or an AsyncGRPOTrainer's run from outside.

    from ratioscope.adapters.trl import record

    recorder = record(trainer, "runs/mine")
    trainer.train()

One optimizer step is one step of the run. The trainer's own methods are wrapped on this instance: what they are given,
return and raise stays the same, no random number is drawn and no weight touched, so that training with and without the
recorder is bitwise the same. What fails in the recorder ends the recording, with one warning, and never the training.

What the columns mean here: `logp_current` is the policy that the loss differentiates, which is pi_k, because a token is
looked at once an optimizer step; `logp_behavior_train` is TRL's `old_per_token_logps`, the policy at generation as the
trainer evaluates it, and where TRL leaves it out because no weight has changed since, the loss's own pass (an
RLOOTrainer hands its loss the sums of the responses: the tokens' values are taken where it makes them);
`logp_behavior` is what vLLM returned, and null for other samplers, which return nothing; versions are optimizer steps.

Read against TRL 1.16.0: trl/trainer/grpo_trainer.py, trl/trainer/grpo_config.py, trl/trainer/rloo_trainer.py,
trl/trainer/rloo_config.py and trl/experimental/async_grpo/.
"""

from ratioscope.adapters.trl.attaching import record
from ratioscope.adapters.trl.recorder import GRPORecorder

__all__ = ["GRPORecorder", "record"]
