-- grain: one token, with what the checks ask of it.
-- The placeholder says whether it is a view or a table.
-- fresh: log-ratio of two engines that hold the same weights, which should be 0; null where the weights may differ.
create or replace temp $kind examined as
select
    *,
    coalesce(logp_behavior_train, logp_current)::double as logp_same_engine,
    logp_behavior < -1e-3 or logp_current < -1e-3 as uncertain,
    case
        when invalid is not null then null
        when logp_behavior_train is not null then if(isfinite(log_engine), log_engine, null)
        when version_lag = 0 then if(isfinite(log_rho), log_rho, null)
    end as fresh
from token;
