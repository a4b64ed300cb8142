package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// writer is a transactional producer of one of the two clients.
type writer interface {
	begin() error
	// send sends a record, and waits for its acknowledgement.
	send(topic string, partition int32, value string) error
	end(commit bool) error
	close()
}

const answerMax = 60 * time.Second

func newWriter(client string, with options) writer {
	if client == "franz-go" {
		return newFranzWriter(with)
	}
	return newSaramaWriter(with)
}

// obey carries out a command: "begin", "send topic partition value", "commit", "abort".
func obey(to writer, command string) error {
	words := strings.Split(command, " ")
	switch words[0] {
	case "begin":
		return to.begin()
	case "send":
		partition, err := strconv.Atoi(words[2])
		fail(err)
		return to.send(words[1], int32(partition), words[3])
	case "commit":
		return to.end(true)
	case "abort":
		return to.end(false)
	}
	return fmt.Errorf("no such command: %s", command)
}

type franzWriter struct{ client *kgo.Client }

func newFranzWriter(with options) writer {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(with.bootstrap),
		kgo.TransactionalID(with.id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
	fail(err)
	waiting, stop := context.WithTimeout(context.Background(), answerMax)
	defer stop()
	_, _, err = client.ProducerID(waiting)
	fail(err)
	return franzWriter{client}
}

func (w franzWriter) begin() error { return w.client.BeginTransaction() }

func (w franzWriter) send(topic string, partition int32, value string) error {
	waiting, stop := context.WithTimeout(context.Background(), answerMax)
	defer stop()
	record := kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	return w.client.ProduceSync(waiting, &record).FirstErr()
}

func (w franzWriter) end(commit bool) error {
	waiting, stop := context.WithTimeout(context.Background(), answerMax)
	defer stop()
	return w.client.EndTransaction(waiting, kgo.TransactionEndTry(commit))
}

// close leaves an open transaction open.
func (w franzWriter) close() { w.client.CloseAllowingRebalance() }

type saramaWriter struct{ producer sarama.SyncProducer }

func newSaramaWriter(with options) writer {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 100 // a leader may move while the machine is busy
	config.Producer.Transaction.ID = with.id
	producer, err := sarama.NewSyncProducer([]string{with.bootstrap}, config)
	fail(err)
	return saramaWriter{producer}
}

func (w saramaWriter) begin() error { return w.producer.BeginTxn() }

func (w saramaWriter) send(topic string, partition int32, value string) error {
	message := sarama.ProducerMessage{
		Topic: topic, Partition: partition, Value: sarama.StringEncoder(value),
	}
	_, _, err := w.producer.SendMessage(&message)
	return err
}

func (w saramaWriter) end(commit bool) error {
	if commit {
		return w.producer.CommitTxn()
	}
	return w.producer.AbortTxn()
}

// close does nothing: sarama would end the transaction, and the process ends anyway.
func (w saramaWriter) close() {}
