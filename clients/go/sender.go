package hifi

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

var (
	// ErrSetup: the sender cannot be made with these options.
	ErrSetup = errors.New("hifi: setup")
	// ErrNotAnEvent: the event to send is no JSON object, or is too large.
	ErrNotAnEvent = errors.New("hifi: not an event")
	// ErrClosed: the sender was closed; make another one.
	ErrClosed = errors.New("hifi: the sender is closed: make another one")
	// ErrGateway: the gateway is not there, is not one, or does not accept these events.
	ErrGateway = errors.New("hifi: gateway")
)

var streamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,99}$`)

// An event costs this much memory besides its bytes.
const overheadBytes = 64

// Options of a sender; zero values mean the defaults.
type Options struct {
	// An API key; without it HIFI_API_KEY of the environment.
	Key string
	// Whether bodies are packed.
	Gzip bool
	// A batch goes when it reaches 500 events, 1,000,000 bytes or an age of 50 ms (the defaults).
	BatchCountMax, BatchBytesMax int
	Linger                       time.Duration
	// Requests under way at once (4); 1 keeps the order of events.
	ParallelMax int
	// The memory limit for events (32,000,000 bytes); then Send waits for room.
	MemoryBytesMax int
	// How long an event is tried before its fate is NotStored or Unknown (two minutes).
	GiveUp time.Duration
	// How long a request may take (30 s).
	Timeout time.Duration
	// Whether the gateway remembers each request for a day, to store repeated ones once.
	IsIdempotent bool
	// Called with each event's outcome, from several goroutines.
	OnOutcome func(Outcome)
	// Called with a sentence when something else is wrong than before; without it that is logged.
	OnProblem func(string)
	// For certificates and proxies of one's own.
	Transport http.RoundTripper
}

// Sender sends events to one stream. Its methods may be called from many goroutines.
type Sender struct {
	options Options
	base    string
	address string
	client  *http.Client
	pace    *pace
	// Ends when nothing is tried any more.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	open     *batch
	sealed   []*batch
	underWay int
	bytes    int
	isClosed bool
	// Closed when bytes were given free, and another one takes its place.
	freed chan struct{}
}

// batch holds events that go together, or a part of them: by place, if they are not all.
type batch struct {
	lines  [][]byte
	ids    []string
	places []int
	fates  *fates
	bytes  int
	born   time.Time
	linger *time.Timer
}

// NewSender makes a sender for a stream of the gateway at an address such as http://127.0.0.1:8080.
func NewSender(gateway, stream string, options Options) (*Sender, error) {
	base, err := addressOf(gateway)
	if err != nil {
		return nil, err
	}
	if !streamName.MatchString(stream) {
		return nil, fmt.Errorf("%w: %q is no name of a stream: a to z, 0 to 9, - and _, 100 at most", ErrSetup, stream)
	}
	options.Key = or(options.Key, os.Getenv("HIFI_API_KEY"))
	setDefault(&options.BatchCountMax, 500)
	setDefault(&options.BatchBytesMax, 1_000_000)
	setDefault(&options.Linger, 50*time.Millisecond)
	setDefault(&options.ParallelMax, 4)
	setDefault(&options.MemoryBytesMax, 32_000_000)
	setDefault(&options.GiveUp, 2*time.Minute)
	setDefault(&options.Timeout, 30*time.Second)
	if options.OnProblem == nil {
		options.OnProblem = func(problem string) { log.Printf("hifi: %s", problem) }
	}
	if options.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = options.ParallelMax
		options.Transport = transport
	}
	life, end := context.WithCancel(context.Background())
	return &Sender{
		options: options,
		base:    base,
		address: base + "/v1/streams/" + stream + "/events",
		client: &http.Client{
			Transport:     options.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		pace: newPace(),
		life: life, end: end,
		freed: make(chan struct{}),
	}, nil
}

// Problem is a sentence about the current problem; empty while all is well.
func (s *Sender) Problem() string { return s.pace.said() }

// Send takes an event: something that is a JSON object once it is marshalled, or the text of one.
// It waits while memory is full, until the context ends. Sent.Outcome reports its outcome.
func (s *Sender) Send(ctx context.Context, event any, marks ...Mark) (*Sent, error) {
	id, line, err := lineOf(event, marks)
	if err != nil {
		return nil, err
	}
	for {
		sent, freed, err := s.take(id, line)
		if sent != nil || err != nil {
			return sent, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("hifi: memory is full of events that wait (%d bytes): %w", s.options.MemoryBytesMax, ctx.Err())
		}
	}
}

// take adds to the open batch; without room it returns what to wait for.
func (s *Sender) take(id string, line []byte) (*Sent, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, nil, ErrClosed
	}
	cost := len(line) + overheadBytes
	if s.bytes > 0 && s.bytes+cost > s.options.MemoryBytesMax {
		return nil, s.freed, nil
	}
	if s.open != nil && s.open.bytes+len(line) > s.options.BatchBytesMax {
		s.seal()
	}
	if s.open == nil {
		one := &batch{fates: newFates(), born: time.Now()}
		one.linger = time.AfterFunc(s.options.Linger, func() { s.sealIf(one) })
		s.open = one
	}
	one := s.open
	nth := one.fates.add()
	one.lines, one.ids = append(one.lines, line), append(one.ids, id)
	one.bytes += len(line) + 1
	s.bytes += cost
	if nth+1 >= s.options.BatchCountMax || one.bytes >= s.options.BatchBytesMax {
		s.seal()
	}
	return &Sent{ID: id, fates: one.fates, nth: nth}, nil, nil
}

// Flush sends all waiting events, and waits until each has its fate, or the context ends.
func (s *Sender) Flush(ctx context.Context) error {
	for {
		s.mu.Lock()
		s.seal()
		left, freed := s.bytes, s.freed
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close takes no more events and sends the rest until the context ends; it then settles the
// remaining events and returns the context's error.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	err := s.Flush(ctx)
	s.end()
	if err != nil {
		_ = s.Flush(context.Background())
	}
	s.client.CloseIdleConnections()
	return err
}

// Check asks the gateway whether it would take an event.
func (s *Sender) Check(ctx context.Context) error {
	read := s.exchange(ctx, [][]byte{[]byte(`{"id":"rehearsal"}`)}, "?dry_run=true", "")
	if read.isRehearsed {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrGateway, s.about(read))
}

func (s *Sender) sealIf(one *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == one {
		s.seal()
	}
}

// seal has the open batch sent; with the lock.
func (s *Sender) seal() {
	if s.open != nil {
		s.open.linger.Stop()
		s.sealed = append(s.sealed, s.open)
		s.open = nil
	}
	for len(s.sealed) > 0 && s.underWay < s.options.ParallelMax {
		s.underWay++
		go s.settleAll(s.sealed[0])
		s.sealed = s.sealed[1:]
	}
}

// settleAll goes on with the next batch until there is none.
func (s *Sender) settleAll(one *batch) {
	for one != nil {
		s.settle(one)
		one = s.next(one)
	}
}

func (s *Sender) next(done *batch) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range done.lines {
		s.bytes -= len(line) + overheadBytes
	}
	close(s.freed)
	s.freed = make(chan struct{})
	if len(s.sealed) == 0 {
		s.underWay--
		return nil
	}
	one := s.sealed[0]
	s.sealed = s.sealed[1:]
	return one
}

func setDefault[T int | time.Duration](option *T, otherwise T) {
	if *option == 0 {
		*option = otherwise
	}
}

func addressOf(gateway string) (string, error) {
	parts, err := url.Parse(gateway)
	if err != nil || parts.Host == "" || (parts.Scheme != "http" && parts.Scheme != "https") {
		return "", fmt.Errorf("%w: %q is no address of a gateway: write it as http://127.0.0.1:8080 or https://hifi.example", ErrSetup, gateway)
	}
	if parts.User != nil || parts.RawQuery != "" || parts.Fragment != "" {
		return "", fmt.Errorf("%w: %q has more than an address: give the key as an option", ErrSetup, parts.Redacted())
	}
	return strings.TrimSuffix(strings.TrimRight(parts.Scheme+"://"+parts.Host+parts.Path, "/"), "/v1"), nil
}
