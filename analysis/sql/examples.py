"""Queries worth having: questions that no page answers as they stand, each a start for one's own.

`{first}` and `{last}` are the steps to look at. They show the habits that a log with bad numbers needs: `invalid is
null` keeps the rows that metrics use, `isfinite` what can be ordered and averaged, counts stand beside means.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ratioscope.analysis.sql.tables import Documented

Mark = Literal["line", "bar", "scatter"]


@dataclass(frozen=True)
class Drawing:
    """How the result of a query is best drawn; columns of the result."""

    mark: Mark
    x: str
    y: str
    colour: str = ""
    logarithmic: bool = False
    """The y axis."""


@dataclass(frozen=True)
class ExampleQuery:
    """A question and the query that answers it."""

    question: str
    sql: str
    needs: tuple[str, ...] = ()
    """Columns, as table.column, without which the answer is empty."""
    drawn: Drawing | None = None

    def text(self, first: int, last: int) -> str:
        """The query for these steps."""
        return self.sql.strip().format(first=first, last=last)


EXAMPLES = (
    ExampleQuery(
        "Which tokens moved furthest?",
        """
select step, seq_id, position, text, exp(log_rho) as ratio, log_rho,
       logp_behavior, logp_current, advantage, clipped, version_lag
from tokens left join vocabulary using (token_id)
where step between {first} and {last} and isfinite(log_rho)
order by abs(log_rho) desc
limit 100
""",
        ("tokens.log_rho", "vocabulary.text"),
    ),
    ExampleQuery(
        "Where in the response does the gate clip?",
        """
select position // 8 * 8 as position, avg(clipped::int) as clip_fraction, count(*) as tokens
from tokens
where step between {first} and {last} and invalid is null
group by all
order by position
""",
        ("tokens.clipped",),
        Drawing("bar", "position", "clip_fraction"),
    ),
    ExampleQuery(
        "Which tokens are clipped most often?",
        """
select text, count(*) as tokens, count(*) filter (clipped) as clipped, avg(clipped::int) as share,
       avg(exp(log_rho)) as mean_ratio
from tokens join vocabulary using (token_id)
where step between {first} and {last} and invalid is null
group by text
having count(*) filter (clipped) > 0
order by clipped desc, text
limit 40
""",
        ("tokens.log_rho", "vocabulary.text", "tokens.clipped"),
        Drawing("bar", "text", "clipped"),
    ),
    ExampleQuery(
        "Does drift grow with the age of the data?",
        """
select version_lag, avg(greatest(1 - exp(log_rho), 0)) as staleness, avg(log_rho) as mean_log_ratio, count(*) as tokens
from tokens
where step between {first} and {last} and invalid is null
group by version_lag
order by version_lag
""",
        ("tokens.log_rho", "tokens.behavior_version"),
        Drawing("line", "version_lag", "staleness"),
    ),
    ExampleQuery(
        "How heavy is the tail, quantile by quantile?",
        """
select step,
       unnest(['50%', '90%', '99%', '99.9%']) as quantile,
       unnest(quantile_cont(exp(log_rho), [0.5, 0.9, 0.99, 0.999])) as ratio
from tokens
where step between {first} and {last} and invalid is null
group by step
order by step
""",
        ("tokens.log_rho",),
        Drawing("line", "step", "ratio", "quantile", logarithmic=True),
    ),
    ExampleQuery(
        "Do long responses leave the trust region?",
        """
select count(*) as tokens, sum(log_rho) as log_ratio, if(avg(advantage) > 0, 'A > 0', 'A ≤ 0') as advantage,
       step, seq_id
from tokens
where step between {first} and {last} and invalid is null
group by step, seq_id
order by step, seq_id
""",
        ("tokens.log_rho",),
        Drawing("scatter", "tokens", "log_ratio", "advantage"),
    ),
    ExampleQuery(
        "Do uncertain states drift more?",
        """
select floor(entropy * 4) / 4 as entropy, avg(greatest(1 - exp(log_rho), 0)) as staleness, count(*) as tokens
from tokens
where step between {first} and {last} and invalid is null and isfinite(entropy)
group by all
order by entropy
""",
        ("tokens.log_rho", "tokens.entropy"),
        Drawing("line", "entropy", "staleness"),
    ),
    ExampleQuery(
        "Which prompts never earn a reward?",
        """
select prompt_id, left(any_value(prompt), 80) as prompt, avg(reward) as mean_reward,
       count(*) as responses, count(distinct step) as steps
from sequences
where step between {first} and {last} and isfinite(reward)
group by prompt_id
order by mean_reward, responses desc
limit 500
""",
        ("sequences.prompt_id",),
    ),
    ExampleQuery(
        "Does reward depend on length?",
        """
select n_tokens // 8 * 8 as tokens, avg(reward) as mean_reward, count(*) as responses
from sequences
where step between {first} and {last} and isfinite(reward)
group by all
order by tokens
""",
        ("sequences.reward",),
        Drawing("line", "tokens", "mean_reward"),
    ),
    ExampleQuery(
        "Which rows cannot be used, and why?",
        """
select coalesce(invalid, 'can be used') as row_is, count(*) as tokens, min(step) as first_step, max(step) as last_step,
       count(*) filter (isnan(logp_behavior)) as nan_behavior,
       count(*) filter (isnan(logp_current)) as nan_current,
       count(*) filter (isnan(advantage)) as nan_advantage
from tokens
group by all
order by tokens desc
""",
        ("tokens.position",),
    ),
    ExampleQuery(
        "Is a metric what I think it is?",
        """
select step, avg(ratio_distance(log_rho_new, log_rho)) / 2 as by_hand,
       any_value(u_k) as u_k, any_value(u_k_lower) as u_k_lower, any_value(u_k_upper) as u_k_upper
from tokens join summary using (step)
where step between {first} and {last} and invalid is null
group by step
order by step
""",
        ("tokens.log_rho", "tokens.logp_new", "summary.u_k"),
        Drawing("line", "step", "by_hand"),
    ),
    ExampleQuery(
        "Which metrics cannot be trusted here?",
        """
select metric, count(*) as steps, min(step) as first_step, max(step) as last_step, any_value(note) as why
from notes
where step between {first} and {last}
group by metric
order by steps desc, metric
""",
    ),
)


def example_queries(tables: Sequence[Documented]) -> list[ExampleQuery]:
    """Those that the run logs enough for."""
    logged = {f"{table.name}.{column}" for table in tables for column in table.logged}
    return [example for example in EXAMPLES if logged.issuperset(example.needs)]
