-- A lane counts while its instance is seen, works and still has it: one with a fixed name may come back
-- with fewer lanes, and one that halts or waits stands still; neither must hold back the offset of those
-- that go on.
CREATE OR REPLACE VIEW group_offsets AS
WITH lanes AS (
  SELECT o.*,
         coalesce(i.seen_at > now() - interval '1 minute' AND o.lane < i.lanes
                  AND i.state NOT IN ('halted', 'waiting'), false) AS live,
         coalesce(o.lane = ANY (i.idle_lanes), false) AS idle
    FROM offsets o
    LEFT JOIN instances i USING (group_name, instance))
SELECT DISTINCT ON (group_name)
       group_name, subscription, message_id, publish_time, epoch,
       max(lag_ms) OVER w AS lag_ms, max(updated_at) OVER w AS updated_at, updated_by, live
  FROM lanes
WINDOW w AS (PARTITION BY group_name, live)
 ORDER BY group_name, live DESC, idle,
          CASE WHEN live AND idle THEN publish_time END DESC NULLS LAST,
          publish_time, message_id COLLATE "C";
