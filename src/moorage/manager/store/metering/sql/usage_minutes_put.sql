-- Write usage of kernels by the minute ($1 agent, $2 its incarnation, $3 kernel, $4 start in Unix
-- seconds, $5 number of samples, then pairs of mean and peak). A repeated minute changes nothing. A
-- minute far from the present by the clock of the database is ignored.
INSERT INTO kernel_usage_spans (kernel_id, seconds, at, samples, cpu, cpu_peak, memory, memory_peak,
                                rx, rx_peak, tx, tx_peak, gpu, gpu_peak, gpu_memory,
                                gpu_memory_peak)
SELECT k.id, 60, to_timestamp(i.at), i.samples, i.cpu, i.cpu_peak, i.memory, i.memory_peak, i.rx,
       i.rx_peak, i.tx, i.tx_peak, i.gpu, i.gpu_peak, i.gpu_memory, i.gpu_memory_peak
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::int[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
            $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[])
     AS i(agent_id, incarnation, kernel_id, at, samples, cpu, cpu_peak, memory, memory_peak, rx,
          rx_peak, tx, tx_peak, gpu, gpu_peak, gpu_memory, gpu_memory_peak)
JOIN agents a ON a.id = i.agent_id AND a.incarnation = i.incarnation
JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
WHERE to_timestamp(i.at) BETWEEN now() - interval '2 hours' AND now() + interval '10 minutes'
ON CONFLICT DO NOTHING
