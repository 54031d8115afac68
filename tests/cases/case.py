"""A case: a log with one fault, or with none, what a perfect tool says of it, and what is untrue.

A pattern is one or several regular expressions joined by " & ": all of them must be in what one finding or remark says
(sentence, why and do, in lower case).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.cases.world import Log

FAMILIES = ("sampler", "weights", "log", "advantage", "loss", "selection", "update", "healthy", "sick but true")
Make = Callable[[], Log]

REPOSITORIES = {
    "ART": "OpenPipe/ART", "AReaL": "inclusionAI/AReaL", "AReno": "inclusionAI/AReno",
    "Liger-Kernel": "linkedin/Liger-Kernel", "LightRFT": "opendilab/LightRFT", "NeMo-Aligner": "NVIDIA/NeMo-Aligner",
    "NeMo-Gym": "NVIDIA-NeMo/Gym", "NeMo-RL": "NVIDIA-NeMo/RL", "OpenRLHF": "OpenRLHF/OpenRLHF", "RLinf": "RLinf/RLinf",
    "ROLL": "alibaba/ROLL", "SGLang": "sgl-project/sglang", "SkyRL": "NovaSky-AI/SkyRL", "TRL": "huggingface/trl",
    "Trinity": "modelscope/Trinity-RFT", "autocontext": "greyhaven-ai/autocontext", "gem": "axon-rl/gem",
    "marin": "marin-community/marin", "maxtext": "AI-Hypercomputer/maxtext", "miles": "radixark/miles",
    "miles_diffusion": "radixark/miles_diffusion", "mlx-lm-lora": "Goekdeniz-Guelmez/mlx-lm-lora",
    "mlx-swift-lm": "ml-explore/mlx-swift-lm", "ms-swift": "modelscope/ms-swift",
    "open-instruct": "allenai/open-instruct", "oumi": "oumi-ai/oumi", "prime-rl": "PrimeIntellect-ai/prime-rl",
    "eval-protocol": "eval-protocol/python-sdk", "reskill": "amazon-science/reskill", "TorchRL": "pytorch/rl",
    "rllm": "rllm-org/rllm", "slime": "THUDM/slime", "tinker-cookbook": "thinking-machines-lab/tinker-cookbook",
    "transformers": "huggingface/transformers", "trlx": "CarperAI/trlx", "vLLM": "vllm-project/vllm",
    "ChatLearn": "alibaba/ChatLearn", "dynamo": "ai-dynamo/dynamo", "torchtitan": "pytorch/torchtitan",
    "flash-linear-attention": "fla-org/flash-linear-attention", "PufferLib": "PufferAI/PufferLib",
    "FastChat": "lm-sys/FastChat", "PipelineRL": "ServiceNow/PipelineRL",
    "RL2": "ChenmienTan/RL2", "verl": "volcengine/verl", "Agent-R1": "AgentR1/Agent-R1",
    "R1-V": "StarsfieldAI/R1-V", "RL-Kernel": "RL-Align/RL-Kernel", "unsloth-zoo": "unslothai/unsloth-zoo",
    "verifiers": "PrimeIntellect-ai/verifiers",
    "agent-lightning": "microsoft/agent-lightning", "agentcore-rl-toolkit": "awslabs/agentcore-rl-toolkit",
    "unsloth": "unslothai/unsloth", "verl-omni": "verl-project/verl-omni", "verl-recipe": "verl-project/verl-recipe",
    "AgenticArXiv-RL": "Algorineko/AgenticArXiv-RL", "Search-R1": "PeterGriffinJin/Search-R1",
    "Spec-RL": "ShopeeLLM/Spec-RL", "WebAgent-R1": "weizhepei/WebAgent-R1",
    "axolotl": "axolotl-ai-cloud/axolotl", "compose-rl": "databricks/compose-rl",
    "tpu-inference": "vllm-project/tpu-inference", "Megatron-LM": "NVIDIA/Megatron-LM",
    "cookbook": "huggingface/cookbook", "nanoVLM": "huggingface/nanoVLM", "olmo-eval": "allenai/olmo-eval",
    "open-r1": "huggingface/open-r1", "OpenEnv": "huggingface/OpenEnv", "UniRL": "Tencent-Hunyuan/UniRL",
    "dspy": "stanfordnlp/dspy", "vllm-metal": "vllm-project/vllm-metal",
    "EasyR1": "hiyouga/EasyR1", "agent-health": "opensearch-project/agent-health", "evals": "openai/evals",
    "gptme-contrib": "gptme/gptme-contrib", "skill": "pinchbench/skill", "subnet-22": "Desearch-ai/subnet-22",
    "uni-agent": "verl-project/uni-agent",
    "tau-bench": "sierra-research/tau-bench", "codescout": "OpenHands/codescout",
}  # fmt: skip
"""Where the reports of a program are, on GitHub."""


@dataclass(frozen=True)
class Case:
    """A declared case; `make` is called anew for each log."""

    name: str
    family: str
    truth: str
    """What a perfect tool says, in one sentence."""
    make: Make
    report: str = ""
    """Who met it in public: repository and number."""
    needs: tuple[str, ...] = ()
    """Patterns that must be said; nothing need be said of a case without one."""
    never: tuple[str, ...] = ()
    """Patterns that would be untrue."""
    columns: tuple[str, ...] = ("all",)
    """Sets of columns that a log is written with, one log each."""

    def logs(self) -> dict[str, str]:
        """Names of its logs, each with its set of columns."""
        return {
            self.name if columns == "all" else f"{self.name}-{columns.replace(' ', '_')}": columns
            for columns in self.columns
        }


def linked(report: str) -> str:
    """Reports as Markdown, each number with its address where the repository is known."""
    found = []
    for program in report.split("; "):
        name, _, numbers = program.partition(" ")
        address = f"https://github.com/{REPOSITORIES[name]}/issues/" if name in REPOSITORIES else ""
        each = (
            f"[{number}]({address}{number.removeprefix('#')})" if address else number for number in numbers.split(", ")
        )
        found.append(f"{name} {', '.join(each)}")
    return "; ".join(found)


def says(pattern: str, text: str) -> bool:
    """Whether all parts of a pattern are in a text."""
    return all(re.search(part, text, re.DOTALL) for part in pattern.split(" & "))


class Register(dict[str, Case]):
    """Cases by name; called, it is the decorator that declares one, by the name of the function that makes its log."""

    def __call__(
        self,
        family: str,
        truth: str,
        *,
        report: str = "",
        needs: tuple[str, ...] = (),
        never: tuple[str, ...] = (),
        columns: tuple[str, ...] = ("all",),
    ) -> Callable[[Make], Make]:
        """Declare the function below; the arguments are the fields of `Case`."""

        def declared(make: Make) -> Make:
            self[make.__name__] = Case(make.__name__, family, truth, make, report, needs, never, columns)
            return make

        return declared
