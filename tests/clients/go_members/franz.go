package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	client *kgo.Client
	owned  map[int32]bool
	mutex  sync.Mutex
}

func newFranz(with options) member {
	made := &franz{owned: map[int32]bool{}}
	balancer := kgo.RangeBalancer()
	if with.strategy == "cooperative-sticky" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	wanted := []kgo.Opt{
		kgo.SeedBrokers(with.bootstrap),
		kgo.ConsumerGroup(with.group),
		kgo.ConsumeTopics(with.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(10 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(made.changed(true)),
		kgo.OnPartitionsRevoked(made.changed(false)),
		kgo.OnPartitionsLost(made.changed(false)),
	}
	if with.instance != "" {
		wanted = append(wanted, kgo.InstanceID(with.instance))
	}
	client, err := kgo.NewClient(wanted...)
	fail(err)
	made.client = client
	go made.poll()
	return made
}

func (f *franz) changed(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		moved := []int32{}
		for _, partitions := range topics {
			for _, partition := range partitions {
				moved = append(moved, partition)
				if owns {
					f.owned[partition] = true
				} else {
					delete(f.owned, partition)
				}
			}
		}
		if !owns && len(moved) > 0 {
			tell(map[string]any{"revoked": moved})
		}
		all := []int32{}
		for partition := range f.owned {
			all = append(all, partition)
		}
		tell(map[string]any{"assigned": all})
	}
}

func (f *franz) poll() {
	for {
		fetches := f.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(record *kgo.Record) {
			tell(map[string]any{"record": []int64{int64(record.Partition), record.Offset}})
		})
	}
}

func (f *franz) commit() error {
	return f.client.CommitUncommittedOffsets(context.Background())
}

func (f *franz) close() {
	f.client.Close()
}
