-- grain: one token. `gated_at`: its log-probability where the loss evaluated its gate, which was the start of the update
-- where nothing else is logged. Null: what is logged there is no log-probability, so that the row has no gate.
create or replace temporary view gated as
select
    *,
    case when isnan(logp_gate) or logp_gate > $largest then null else coalesce(logp_gate, logp_current) end as gated_at
from token
