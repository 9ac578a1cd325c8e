package hifi

import (
	"context"
	"sync"
)

// Fate is the final outcome of an event.
type Fate string

const (
	// Accepted: Kafka has the event, on as many brokers as Hifi promises.
	Accepted Fate = "accepted"
	// Rejected: Hifi refuses the event; Code, Reason and Pointer say why.
	Rejected Fate = "rejected"
	// NotStored: time was up, and the event is not in the log.
	NotStored Fate = "not_stored"
	// Unknown: time was up, and the event may be in the log.
	Unknown Fate = "unknown"
)

// Outcome is the fate of one event, and its reason.
type Outcome struct {
	ID                    string
	Fate                  Fate
	Code, Reason, Pointer string
}

// fates has the outcomes of the events of one batch.
type fates struct {
	mu   sync.Mutex
	told []*Outcome
	// Closed when there are new outcomes; a new channel replaces it.
	news chan struct{}
}

func newFates() *fates { return &fates{news: make(chan struct{})} }

func (f *fates) add() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, nil)
	return len(f.told) - 1
}

func (f *fates) known(nth int) (*Outcome, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told[nth], f.news
}

// tell stores outcomes by place, and returns those of events that had none before.
func (f *fates) tell(outcomes map[int]Outcome) []Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	var fresh []Outcome
	for nth, outcome := range outcomes {
		if f.told[nth] == nil {
			f.told[nth] = &outcome
			fresh = append(fresh, outcome)
		}
	}
	close(f.news)
	f.news = make(chan struct{})
	return fresh
}

// Sent is one event that a sender has taken.
type Sent struct {
	ID    string
	fates *fates
	nth   int
}

// Outcome waits for the outcome of the event; its error is the context's.
func (s *Sent) Outcome(ctx context.Context) (Outcome, error) {
	for {
		known, news := s.fates.known(s.nth)
		if known != nil {
			return *known, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		}
	}
}

// Known returns the outcome, if there is one already.
func (s *Sent) Known() (Outcome, bool) {
	if known, _ := s.fates.known(s.nth); known != nil {
		return *known, true
	}
	return Outcome{}, false
}
