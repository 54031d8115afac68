-- grain: one usable token: the logarithm of its part of every measure. Null: what it is made of is not logged.
create or replace view term as
select
    step, seq_id, position, group_id, token_id, behavior_version, version_lag, advantage, log_rho, log_rho_new,
    2 * log_rho as log_rho_squared,
    2 * log_abs_expm1(log_rho) as log_chi2,
    log_abs_expm1(log_rho) as log_deviation,
    case
        when log_rho = 0 then '-inf'::double
        when log_rho = '-inf'::double then 'inf'::double
        when log_rho > 30 then log_rho + ln(1 - (1 + log_rho) * exp(-log_rho))
        else ln(expm1_minus(log_rho)) end as log_kl,
    case
        when log_rho_new = log_rho then '-inf'::double
        else greatest(log_rho, log_rho_new) + ln(-expm1(-abs(log_rho_new - log_rho))) end as log_update
from usable;
