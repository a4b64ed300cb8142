// A member of a consumer group, driven through pipes: franz-go or sarama.  With -mode writer it is a
// transactional producer, and with -mode chain a member that produces in transactions.
//
// Commands come on stdin, one a line: "commit", "close".  Events go to stdout, one JSON object a
// line: {"assigned": [0, 1]} (all that it owns now), {"revoked": [0]}, {"record": [partition,
// offset]}, {"committed": ""} (with the error's words), and {"closed": true} at the end.  A writer
// obeys the commands of writers.go and answers {"done": ""} (with the error's words); a chain tells
// {"transaction": true} for each commit.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
)

// member is one of the two clients.
type member interface {
	// commit commits everything that was consumed, and waits for the answer.
	commit() error
	// close leaves; a static member stays in the group.
	close()
}

type options struct {
	bootstrap, group, topic, instance, strategy string
	// id is the transactional id, output the topic that a chain writes to.
	id, output string
}

var output sync.Mutex

func tell(event map[string]any) {
	output.Lock()
	defer output.Unlock()
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func main() {
	var with options
	client := flag.String("client", "", "franz-go or sarama")
	flag.StringVar(&with.bootstrap, "bootstrap", "", "host:port")
	flag.StringVar(&with.group, "group", "", "group id")
	flag.StringVar(&with.topic, "topic", "", "topic")
	flag.StringVar(&with.instance, "instance", "", "group instance id")
	flag.StringVar(&with.strategy, "strategy", "", "cooperative-sticky, or nothing for range")
	flag.StringVar(&with.id, "id", "", "transactional id")
	flag.StringVar(&with.output, "output", "", "topic that a chain writes to")
	mode := flag.String("mode", "member", "member, writer or chain")
	flag.Parse()
	commands := bufio.NewScanner(os.Stdin)
	switch *mode {
	case "writer":
		to := newWriter(*client, with)
		tell(map[string]any{"done": ""})
		for commands.Scan() && commands.Text() != "close" {
			tell(map[string]any{"done": message(obey(to, commands.Text()))})
		}
		to.close()
		return
	case "chain":
		chain(with)
		return
	}
	var joined member
	if *client == "franz-go" {
		joined = newFranz(with)
	} else {
		joined = newSarama(with)
	}
	for commands.Scan() && commands.Text() == "commit" {
		tell(map[string]any{"committed": message(joined.commit())})
	}
	joined.close()
	tell(map[string]any{"closed": true})
}
