-- grain: one token, with what the checks ask of it.
-- The placeholder says whether it is a view or a table.
-- fresh: log-ratio of two engines that hold the same weights, which should be 0; null where the weights may differ.
-- response_lag: the age that the response's row says, where it has one version from its first token to its last.
create or replace temp $kind examined as
with response_age as (
    select step, seq_id, any_value(step::bigint + coalesce(ahead, 0) - behavior_version_min::bigint) as response_lag
    from sequence left join policy_ahead using (step)
    where $counted
    group by step, seq_id
    having min(behavior_version_min) = max(behavior_version_max) and count(*) = count(behavior_version_max)
)
select
    *,
    coalesce(logp_behavior_train, logp_current)::double as logp_same_engine,
    logp_behavior < -1e-3 or logp_current < -1e-3 as uncertain,
    case
        when invalid is not null then null
        when logp_behavior_train is not null then if(isfinite(log_engine), log_engine, null)
        when coalesce(version_lag, response_lag) = 0 then if(isfinite(log_rho), log_rho, null)
    end as fresh
from token left join response_age using (step, seq_id);
