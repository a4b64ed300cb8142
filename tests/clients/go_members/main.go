// A member of a consumer group, driven through pipes: franz-go or sarama.
//
// Commands come on stdin, one a line: "commit", "close".  Events go to stdout, one JSON object a
// line: {"assigned": [0, 1]} (all that it owns now), {"revoked": [0]}, {"record": [partition,
// offset]}, {"committed": ""} (with the error's words), and {"closed": true} at the end.
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
	flag.Parse()
	var joined member
	if *client == "franz-go" {
		joined = newFranz(with)
	} else {
		joined = newSarama(with)
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() && commands.Text() == "commit" {
		tell(map[string]any{"committed": message(joined.commit())})
	}
	joined.close()
	tell(map[string]any{"closed": true})
}
