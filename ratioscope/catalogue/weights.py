"""What importance weights are like: effective sample size, quantiles, tails."""

from ratioscope.catalogue.denominators import NEW, SEQUENCE_WEIGHTS
from ratioscope.catalogue.remedies import TRUNCATE
from ratioscope.metric import ALL_TOKENS, RATIOS, Grain, Metric, Moment
from ratioscope.notes import Kind, Note

ENTRIES = (
    Metric(
        key="ess_token",
        short="ESS, tokens",
        title="Effective sample size, tokens",
        symbol=r"\mathrm{ESS}_{\mathrm{token}}",
        formula=r"\frac{(\sum\rho)^2}{n\sum\rho^2}",
        definition="Share of the tokens that importance weighting leaves effective.",
        source="Kish",
        reading="1 is on-policy; 1/ESS - 1 is the self-normalised chi-square.",
        remedy=TRUNCATE,
        better="higher",
        moment=Moment.SECOND,
        spread="group_spread_chi2",
        share=True,
        undefined=Note(Kind.UNDEFINED, "every ratio is 0"),
    ),
    Metric(
        key="ess_seq",
        short="ESS, responses",
        title="Effective sample size, responses",
        symbol=r"\mathrm{ESS}_{\mathrm{seq}}",
        formula=r"\frac{(\sum W)^2}{n\sum W^2}",
        definition="Share of the responses that sequence importance weighting leaves effective.",
        source="Kish",
        reading="Near 1/n: one response decides the gradient.",
        remedy="Use token or geometric-mean ratios instead of sequence products, or truncate.",
        better="higher",
        moment=Moment.SECOND,
        reliance="reliance_seq",
        grain=Grain.RESPONSE,
        share=True,
        colour="green",
        over=SEQUENCE_WEIGHTS,
        undefined=Note(Kind.UNDEFINED, "every response has a ratio of 0"),
        one_sided=True,
    ),
    *(
        Metric(
            key=f"ratio_{name}",
            title=title,
            symbol=rf"\rho_{{{symbol}}}",
            formula=rf"{symbol}\text{{ of }}\rho_k",
            definition=f"{title} of the tokens; 1: as likely under the policy as under the sampler.",
            source="usual",
            reading="Symmetric widening is drift; a long upper tail is what importance weights suffer from.",
            lowest=0.0,
        )
        for name, title, symbol in (
            ("min", "Smallest ratio", r"\min"),
            ("p01", "1% quantile of the ratio", r"1\%"),
            ("p50", "Median ratio", r"50\%"),
            ("p90", "90% quantile of the ratio", r"90\%"),
            ("p99", "99% quantile of the ratio", r"99\%"),
            ("p999", "99.9% quantile of the ratio", r"99.9\%"),
            ("max", "Largest ratio", r"\max"),
        )
    ),
    *(
        Metric(
            key=key,
            title=title,
            symbol=symbol,
            formula=r"\hat k\text{ of a generalised Pareto fit to the largest weights}",
            definition=f"Tail index of the {what}: moments up to 1/k exist.",
            source="Vehtari et al., Pareto-smoothed importance sampling",
            reading="Below 0.5 good, 0.5 to 0.7 usable, 0.7 to 1 unreliable, above 1 meaningless for means of the ratio. "
            "Means of its square are unreliable from 0.35.",
            remedy=TRUNCATE,
            better="lower",
            grain=grain,
            over=over,
            colour=colour,
        )
        for key, title, symbol, what, grain, over, colour in (
            (
                "khat_token",
                "Tail index, tokens",
                r"\hat k_{\mathrm{token}}",
                "token ratios, current against behavior",
                Grain.TOKEN,
                RATIOS,
                "blue",
            ),
            (
                "khat_token_new",
                "Tail index, tokens, new policy",
                r"\hat k_{\mathrm{new}}",
                "token ratios, new against behavior",
                Grain.TOKEN,
                NEW,
                "violet",
            ),
            (
                "khat_seq",
                "Tail index, responses",
                r"\hat k_{\mathrm{seq}}",
                "sequence ratios, current against behavior",
                Grain.RESPONSE,
                SEQUENCE_WEIGHTS,
                "green",
            ),
        )
    ),
    Metric(
        key="top1pct_share",
        title="Weight of the top 1%",
        symbol=r"\mathrm{share}_{1\%}",
        formula=r"\sum_{\text{top }1\%}\rho^2\,/\,\sum\rho^2",
        definition="Share of the sum of squared token ratios carried by the largest 1% of tokens.",
        source="usual",
        reading="0.01 on-policy; above 0.5, a few tokens make up most of the variance.",
        remedy=TRUNCATE,
        better="lower",
        share=True,
        undefined=Note(Kind.UNDEFINED, "every ratio is 0"),
    ),
    *(
        Metric(
            key=key,
            title=f"Reliance on the largest {what}",
            symbol=rf"\mathrm{{rel}}_{{\mathrm{{{name}}}}}",
            formula=rf"\frac{{\max({symbol}-1)^2}}{{n\,\mathrm{{se}}(\chi^2_{{\mathrm{{{name}}}}})}}",
            definition=f"What the largest {what} adds to the chi-square, in standard errors of the chi-square; 0 where "
            "no ratio is above 1.5.",
            source="docs/metrics.md, uncertainty",
            reading="Above 0.3, chi-square and ESS rest on what happened to be drawn: they are marked as unreliable.",
            remedy=TRUNCATE,
            better="lower",
            grain=grain,
            over=over,
            lowest=0.0,
            comparable=False,
            undefined=Note(Kind.UNDEFINED, "chi-square has no standard error here"),
        )
        for key, name, what, symbol, grain, over in (
            ("reliance_token", "token", "token ratio", r"\rho_k", Grain.TOKEN, RATIOS),
            ("reliance_seq", "seq", "sequence ratio", "W_k", Grain.RESPONSE, SEQUENCE_WEIGHTS),
        )
    ),
    *(
        Metric(
            key=f"group_spread_{name}",
            title=f"Spread of the prompt groups in {words}",
            symbol=rf"\mathrm{{cv}}_{{{symbol}}}",
            formula=rf"\sqrt{{G_{{\mathrm{{eff}}}}-1}}\;\mathrm{{se}}({symbol})\,/\,{symbol}",
            definition=f"Standard deviation of the prompt groups' {words}, as a share of its mean; 0 where the standard "
            "error is at most a tenth of it.",
            source="docs/metrics.md, uncertainty",
            reading=f"Above 1.3 in more than a tenth of a run's steps, {of} rest on the few groups that were drawn. They are "
            "marked as unreliable in all steps.",
            remedy="More prompts per step, and a look at the groups that are far off.",
            better="lower",
            lowest=0.0,
            comparable=False,
            undefined=Note(Kind.UNDEFINED, "there is no standard error, or nothing to compare it with"),
        )
        for name, words, symbol, of in (
            ("kl", "KL (k2)", r"\mathrm{KL}_{k2}", "k1, k2 and k3"),
            ("chi2", "token chi-square", r"\chi^2_{\mathrm{token}}", "chi-square, reverse KL and ESS"),
        )
    ),
    Metric(
        key="effective_groups",
        title="Effective number of prompt groups",
        symbol=r"G_{\mathrm{eff}}",
        formula=r"(\textstyle\sum_g N_g)^2\,/\,\sum_g N_g^2",
        definition="How many prompt groups of one size would be worth as much: their number where all have equally many tokens.",
        source="Kish",
        reading="Intervals rest on it. Below about 12 they are wide, and hold only as far as the groups are alike.",
        remedy="More prompts per step, or as many responses for each.",
        better="higher",
        unit="groups",
        over=ALL_TOKENS,
        lowest=1.0,
    ),
)
