// Sends a batch to each address of a gateway with odd answers, and writes all fates.
//
// `go run ./trials/oddanswers URL ADDRESSES EVENTS TIMEOUT_MS`; tests/support/gateway/odd_answers.py
// describes the addresses.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	hifi "github.com/hifi-streams/hifi/clients/go"
)

func fatesAt(address string, events int, timeout time.Duration) ([]hifi.Fate, error) {
	ctx := context.Background()
	sender, err := hifi.NewSender(address, "orders", hifi.Options{
		Timeout: timeout, GiveUp: 40 * time.Second, BatchCountMax: events, Linger: 40 * time.Second,
		OnProblem: func(string) {},
	})
	if err != nil {
		return nil, err
	}
	var sent []*hifi.Sent
	for nth := range events {
		one, err := sender.Send(ctx, map[string]string{"id": fmt.Sprint(nth)})
		if err != nil {
			return nil, err
		}
		sent = append(sent, one)
	}
	var fates []hifi.Fate
	for _, one := range sent {
		outcome, err := one.Outcome(ctx)
		if err != nil {
			return nil, err
		}
		fates = append(fates, outcome.Fate)
	}
	return fates, sender.Close(ctx)
}

func main() {
	var numbers []int
	for _, word := range os.Args[2:] {
		number, err := strconv.Atoi(word)
		if err != nil {
			log.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	addresses, events, timeout := numbers[0], numbers[1], time.Duration(numbers[2])*time.Millisecond
	fates := make([][]hifi.Fate, addresses)
	var all sync.WaitGroup
	for nth := range addresses {
		all.Add(1)
		go func() {
			defer all.Done()
			found, err := fatesAt(fmt.Sprintf("%s/case/%d", os.Args[1], nth), events, timeout)
			if err != nil {
				log.Fatal(err)
			}
			fates[nth] = found
		}()
	}
	all.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(fates); err != nil {
		log.Fatal(err)
	}
}
