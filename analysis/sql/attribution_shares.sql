-- grain: one owner in one prompt group of one step. Terms are taken relative to the largest: shares are ratios, so the
-- scale cancels. $keys: who owns a token; $term: log of its part; $peak: the largest; $counts: whether it counts.
with
owned as (
    select
        $keys,
        step, group_id,
        count(*) as tokens,
        count(*) filter ($counts) as tokens_counted,
        coalesce(sum(exp($term - $peak)) filter ($counts), 0) as part,
        max(log_rho) as largest_log_ratio,
        -- the largest term and, among equals, the first token: the same whatever the order of the rows
        max({'term': $term, 'step': -step, 'seq_id': -seq_id, 'position': -position}) as example
    from term
    left join (
        select step, seq_id, coalesce(prompt_id::varchar, prompt) as prompt from sequence where $prompt
    ) using (step, seq_id)
    where $term is not null
    group by all
)
select
    * exclude (example),
    example.term as example_term, -example.step as example_step, -example.seq_id as example_seq_id,
    -example.position as example_position
from owned
