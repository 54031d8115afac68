-- grain: one sampled response. Without prompt groups every response is one of its own, as in tokens.sql.
create or replace view sequence as
select * replace (coalesce(group_id, ~seq_id) as group_id), group_id is not null as grouped
from source;
