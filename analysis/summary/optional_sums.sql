-- grain: one prompt group of one step; of columns that a run need not have. Scanned only where one of them is there.
-- Distances of two ratios are differences of their rho - 1, which is computed once.
with
deviations as (
    select
        *, expm1(log_rho) as deviation, expm1(log_rho_new) as deviation_new, expm1(log_engine) as deviation_engine
    from usable
)
select
    step, group_id,
    count(gate) as n_gate,
    sum(gate) as gate,
    sum(case when advantage <> 0 then gate else 0 end) as effective,
    count(entropy) filter (isfinite(entropy)) as n_entropy,
    sum(entropy) filter (isfinite(entropy)) as entropy,
    count(*) filter (isfinite(log_engine)) as n_engine,
    sum(case
        when isfinite(deviation - deviation_engine) then abs(deviation - deviation_engine)
        else ratio_distance(log_rho, log_engine) end) filter (isfinite(log_engine)) as version_part,
    sum(abs(deviation_engine)) filter (isfinite(log_engine)) as engine_part,
    count(*) filter (isfinite(log_reference)) as n_reference,
    -- rho (e^x - 1 - x) with x = log_reference - log_rho; multiplied out where rho is small, down to its limit at 0
    sum(case
        when log_rho = '-inf'::double then exp(log_reference)
        when log_rho < least(log_reference - 1, 0)
            then exp(log_reference) - exp(log_rho) * (1 + log_reference - log_rho)
        else exp(log_rho) * expm1_minus(log_reference - log_rho) end)
        filter (isfinite(log_reference)) as reference,
    count(*) filter (isfinite(tv_current_behavior)) as n_exact,
    sum(tv_current_behavior::double) filter (isfinite(tv_current_behavior)) as exact_staleness,
    max(tv_current_behavior) filter (isfinite(tv_current_behavior)) as exact_largest,
    sum(abs(deviation) / 2 - tv_current_behavior) filter (isfinite(tv_current_behavior)) as sampled_minus_exact,
    count(chi2_current_behavior) filter (not isnan(chi2_current_behavior)) as n_exact_chi2,
    sum(chi2_current_behavior::double) filter (not isnan(chi2_current_behavior)) as exact_chi2,
    count(*) filter (isfinite(tv_new_current)) as n_exact_new,
    sum(tv_new_current::double) filter (isfinite(tv_new_current)) as exact_drift,
    count(log_rho_new) filter (isfinite(tv_new_current)) as n_exact_of_new,
    sum(case
        when isfinite(deviation_new - deviation) then abs(deviation_new - deviation)
        else ratio_distance(log_rho_new, log_rho) end / 2 - tv_new_current) filter (isfinite(tv_new_current))
        as sampled_minus_exact_new
from deviations
group by step, group_id
