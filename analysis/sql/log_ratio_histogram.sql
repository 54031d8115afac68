-- grain: one step and bin. Bins are even in asinh(log rho / 0.01): fine around ratio 1, logarithmic far from it.
select
    step,
    greatest(-100, least(100, round(asinh(log_rho / 0.01) / 0.15)))::smallint as bin,
    count(*) as tokens
from token
where invalid is null and not isnan(log_rho)
group by step, bin
order by step, bin
