-- grain: one prompt group of one step in one stratum of the units. Sums over its usable units; what can leave the
-- floating-point range is a sum relative to e^peak, the group's largest term.
with
term as (
    select
        stratum, step, group_id, weight, x, y, z,
        pair_distance(x, y, z) as distance,
        pair_log_square(y, z) as log_square,
        pair_log_chi2(y, z) as log_chi2
    from unit
    where usable
),
peaks as (
    select
        stratum, step, group_id,
        max(x) as peak_p, max(y) as peak_q, max(log_square) as peak_square, max(log_chi2) as peak_chi2
    from term
    group by all
),
sums as (
    select
        stratum, step, group_id,
        sum(weight) as n,
        count(*) as n_usable,
        sum(weight * distance) / 2 as tv,
        sum(case when z < 0 then weight * distance else 0 end) as tv_bounded,
        sum(weight * pair_weighted(y, z, -z)) as kl_k1,
        sum(weight * pair_weighted(y, z, z * z / 2)) as kl_k2,
        sum(weight * pair_expm1_minus(x, y, z)) as kl_k3,
        sum(weight * pair_expm1_minus(y, x, -z)) as kl_reverse,
        any_value(peak_p) as peak_p,
        any_value(peak_q) as peak_q,
        any_value(peak_square) as peak_square,
        any_value(peak_chi2) as peak_chi2,
        -- a peak of 0 or infinity counts its units
        sum(weight * case when isfinite(peak_p) then exp(x - peak_p) else (x = peak_p)::int end) as p,
        sum(weight * case when isfinite(peak_q) then exp(y - peak_q) else (y = peak_q)::int end) as q,
        sum(weight * case
            when isfinite(peak_square) then exp(log_square - peak_square) else (log_square = peak_square)::int end
        ) as square,
        sum(weight * case
            when isfinite(peak_chi2) then exp(log_chi2 - peak_chi2) else (log_chi2 = peak_chi2)::int end
        ) as chi2
    from term
    join peaks using (stratum, step, group_id)
    group by all
)
select sums.* exclude (stratum, step, group_id), units.*
from (
    select stratum, step, group_id, count(*) as n_units, any_value(missing) as missing from unit group by all
) as units
left join sums using (stratum, step, group_id)
order by stratum, step, group_id
