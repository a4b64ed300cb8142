package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaMember struct {
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	done    sync.WaitGroup
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
}

func newSarama(with options) member {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 10 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(),
	}
	config.Consumer.Group.InstanceId = with.instance
	group, err := sarama.NewConsumerGroup([]string{with.bootstrap}, with.group, config)
	fail(err)
	running, stop := context.WithCancel(context.Background())
	made := &saramaMember{group: group, stop: stop}
	made.done.Add(1)
	go func() {
		defer made.done.Done()
		for running.Err() == nil {
			err := group.Consume(running, []string{with.topic}, made)
			if err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				fail(err)
			}
		}
	}()
	return made
}

func (s *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	s.mutex.Lock()
	s.session = session
	s.mutex.Unlock()
	owned := []int32{}
	for _, partitions := range session.Claims() {
		owned = append(owned, partitions...)
	}
	tell(map[string]any{"assigned": owned})
	return nil
}

func (s *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	for _, partitions := range session.Claims() {
		if len(partitions) > 0 {
			tell(map[string]any{"revoked": partitions})
		}
	}
	tell(map[string]any{"assigned": []int32{}})
	return nil
}

func (s *saramaMember) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			tell(map[string]any{"record": []int64{int64(message.Partition), message.Offset}})
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s *saramaMember) commit() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.session.Commit()
	return nil
}

func (s *saramaMember) close() {
	s.stop()
	s.done.Wait()
	_ = s.group.Close()
}
