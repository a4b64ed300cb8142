package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// chain consumes, transforms and produces in transactions until the process ends.
func chain(with options) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(with.bootstrap),
		kgo.TransactionalID(with.id),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(with.group),
		kgo.ConsumeTopics(with.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(10*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.DefaultProduceTopic(with.output),
	)
	fail(err)
	for {
		fetches := session.PollFetches(context.Background())
		if fetches.NumRecords() == 0 {
			continue
		}
		fail(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			value := fmt.Sprintf("%d/%d", record.Partition, record.Offset)
			session.Produce(context.Background(), kgo.StringRecord(value), nil)
		})
		committed, err := session.End(context.Background(), kgo.TryCommit)
		tell(map[string]any{"transaction": committed, "error": message(err)})
	}
}
