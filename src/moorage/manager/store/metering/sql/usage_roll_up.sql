-- Roll up to $2 minutes, from before the hour that ended $1 seconds ago, into hours (index
-- kernel_usage_spans_age). Minutes of an hour that already exists are merged into it.
WITH old AS (
    SELECT kernel_id, seconds, at FROM kernel_usage_spans
    WHERE seconds = 60 AND at < date_bin('1 hour', now() - make_interval(secs => $1), 'epoch')
    LIMIT $2
), removed AS (
    DELETE FROM kernel_usage_spans s USING old o
    WHERE (s.kernel_id, s.seconds, s.at) = (o.kernel_id, o.seconds, o.at) RETURNING s.*
), put AS (
    INSERT INTO kernel_usage_spans AS h (kernel_id, seconds, at, samples, cpu, cpu_peak, memory,
                                         memory_peak, rx, rx_peak, tx, tx_peak, gpu, gpu_peak,
                                         gpu_memory, gpu_memory_peak)
    SELECT kernel_id, 3600, date_bin('1 hour', at, 'epoch'), sum(samples),
           sum(cpu * samples) / sum(samples), max(cpu_peak), sum(memory * samples) / sum(samples),
           max(memory_peak), sum(rx * samples) / sum(samples) FILTER (WHERE rx IS NOT NULL),
           max(rx_peak),
           sum(tx * samples) / sum(samples) FILTER (WHERE tx IS NOT NULL), max(tx_peak),
           sum(gpu * samples) / sum(samples) FILTER (WHERE gpu IS NOT NULL), max(gpu_peak),
           sum(gpu_memory * samples) / sum(samples) FILTER (WHERE gpu_memory IS NOT NULL),
           max(gpu_memory_peak)
    FROM removed GROUP BY kernel_id, date_bin('1 hour', at, 'epoch')
    ON CONFLICT (kernel_id, seconds, at) DO UPDATE SET
        samples = h.samples + excluded.samples,
        cpu = (h.cpu * h.samples
                   + excluded.cpu * excluded.samples) / (h.samples + excluded.samples),
        memory = (h.memory * h.samples
                      + excluded.memory * excluded.samples) / (h.samples + excluded.samples),
        rx = coalesce((h.rx * h.samples
                           + excluded.rx * excluded.samples) / (h.samples + excluded.samples),
                      h.rx, excluded.rx),
        tx = coalesce((h.tx * h.samples
                           + excluded.tx * excluded.samples) / (h.samples + excluded.samples),
                      h.tx, excluded.tx),
        gpu = coalesce((h.gpu * h.samples
                            + excluded.gpu * excluded.samples) / (h.samples + excluded.samples),
                       h.gpu, excluded.gpu),
        gpu_memory = coalesce((h.gpu_memory * h.samples + excluded.gpu_memory * excluded.samples)
                              / (h.samples + excluded.samples), h.gpu_memory, excluded.gpu_memory),
        cpu_peak = greatest(h.cpu_peak, excluded.cpu_peak),
        memory_peak = greatest(h.memory_peak, excluded.memory_peak),
        rx_peak = greatest(h.rx_peak, excluded.rx_peak),
        tx_peak = greatest(h.tx_peak, excluded.tx_peak),
        gpu_peak = greatest(h.gpu_peak, excluded.gpu_peak),
        gpu_memory_peak = greatest(h.gpu_memory_peak, excluded.gpu_memory_peak)
)
SELECT count(*) AS rolled FROM removed
