-- grain: one action. The bandit reading (gamma = 0): the whole response is one action, its ratios are products.
create or replace temp view action as
select
    step, group_id, seq_id, sum(log_rho) as log_rho,
    case when count(log_rho_new) = count(*) then sum(log_rho_new) end as log_rho_new,
    min(behavior_version) as behavior_version,
    max(behavior_version) as last_version,
    0::double as log_discount,
    bool_and(invalid is null and log_rho is not null) as valid,
    count(*) as n_tokens
from token
group by step, group_id, seq_id
