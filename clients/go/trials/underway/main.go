// Sends without a pause until its input ends, and writes each event's fate and id to its output.
//
// `go run ./trials/underway URL STREAM`; it ends with "done" when every event has its fate.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	hifi "github.com/hifi-streams/hifi/clients/go"
)

func main() {
	var lines sync.Mutex
	sender, err := hifi.NewSender(os.Args[1], os.Args[2], hifi.Options{
		BatchCountMax: 50, MemoryBytesMax: 200_000, Timeout: 2 * time.Second,
		OnOutcome: func(outcome hifi.Outcome) {
			lines.Lock()
			defer lines.Unlock()
			fmt.Println(outcome.Fate, outcome.ID)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		if _, err := sender.Send(ctx, map[string]string{"text": strings.Repeat("x", 100)}); err != nil && ctx.Err() == nil {
			log.Fatal(err)
		}
	}
	if err := sender.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done")
}
