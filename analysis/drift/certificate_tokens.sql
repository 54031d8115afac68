-- grain: one action. The token reading: an action is a token, discounted by its position ($log_gamma: ln gamma).
create or replace temp view action as
select
    step, group_id, seq_id, log_rho, log_rho_new, behavior_version, behavior_version as last_version,
    position * $log_gamma::double as log_discount,
    invalid is null and log_rho is not null as valid,
    1 as n_tokens
from token
