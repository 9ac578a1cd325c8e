package hifi

import (
	"context"
	"math/rand"
	"sync"
	"time"
)

const (
	pauseFirst = 100 * time.Millisecond
	pauseMax   = 5 * time.Second
)

// pace holds back all requests of a sender while the gateway is down or has asked for a pause.
type pace struct {
	mu        sync.Mutex
	problem   string
	notBefore time.Time
	// A pause that the gateway asked for lasts even if another request succeeds.
	askedUntil time.Time
	failures   int
	// Closed when requests may be sent sooner than planned.
	sooner chan struct{}
}

func newPace() *pace { return &pace{sooner: make(chan struct{})} }

// turn waits until a request may be sent; it returns false if the context ends first.
func (p *pace) turn(ctx context.Context) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		left, sooner := time.Until(p.notBefore), p.sooner
		p.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-sooner:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

func (p *pace) wentWell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == "" {
		return
	}
	p.problem, p.failures, p.notBefore = "", 0, p.askedUntil
	close(p.sooner)
	p.sooner = make(chan struct{})
}

// failed makes requests wait longer each time, or as long as the gateway asks; it returns whether the
// problem is new.
func (p *pace) failed(problem string, asked time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := min(pauseFirst<<min(p.failures, 10), pauseMax)
	// Random, so that many senders do not retry at the same moment.
	pause = pause/2 + time.Duration(rand.Int63n(int64(pause/2)))
	now := time.Now()
	if asked >= 0 {
		if p.failures == 0 || asked > pause {
			pause = asked
		}
		p.askedUntil = latest(p.askedUntil, now.Add(asked))
	}
	p.failures++
	p.notBefore = latest(p.notBefore, now.Add(pause))
	isNews := problem != p.problem
	p.problem = problem
	return isNews
}

func (p *pace) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

func latest(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}
