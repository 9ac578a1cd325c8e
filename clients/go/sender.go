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
	// ErrNotAnEvent: the event to send is not a JSON object, or is too large.
	ErrNotAnEvent = errors.New("hifi: not an event")
	// ErrClosed: the sender is closed; make another one.
	ErrClosed = errors.New("hifi: the sender is closed: make another one")
	// ErrGateway: no gateway answers at this address, or it does not accept these events.
	ErrGateway = errors.New("hifi: gateway")
)

var streamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,99}$`)

// The memory that an event takes besides its bytes.
const overheadBytes = 64

// Options of a sender; zero values mean the defaults.
type Options struct {
	// The API key. Default: the environment's HIFI_API_KEY.
	Key string
	// Whether to compress bodies.
	Gzip bool
	// A batch is sent when it reaches this many events or bytes, or this age (500, 1,000,000, 50 ms).
	BatchCountMax, BatchBytesMax int
	Linger                       time.Duration
	// Requests in flight at once (4); 1 keeps the order of events.
	ParallelMax int
	// The memory limit for events (32,000,000 bytes). When memory is full, Send waits for room.
	MemoryBytesMax int
	// How long an event is tried before its fate is NotStored or Unknown (two minutes).
	GiveUp time.Duration
	// How long a request may take (30 s).
	Timeout time.Duration
	// Whether the gateway remembers each request for a day, to store a repeated request only once.
	IsIdempotent bool
	// Called with each event's outcome, from several goroutines.
	OnOutcome func(Outcome)
	// Called with a sentence when there is a new problem. Default: log it.
	OnProblem func(string)
	// For your own certificates and proxies.
	Transport http.RoundTripper
}

// Sender sends events to one stream. Its methods may be called from many goroutines.
type Sender struct {
	options Options
	base    string
	address string
	client  *http.Client
	pace    *pace
	// Ends when the sender stops trying.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	open     *batch
	sealed   []*batch
	underWay int
	bytes    int
	isClosed bool
	// Closed when memory is released; a new channel replaces it.
	freed chan struct{}
}

// batch has events that are sent together; part of a batch also has their places in the whole batch.
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
		return nil, fmt.Errorf("%w: %q is not a stream name: use up to 100 of a to z, 0 to 9, - and _", ErrSetup, stream)
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

// Problem returns the current problem in a sentence; empty if there is none.
func (s *Sender) Problem() string { return s.pace.said() }

// Send takes an event: a value that marshals to a JSON object, or the text of one. It waits while
// memory is full, until the context ends. Sent.Outcome reports the event's outcome.
func (s *Sender) Send(ctx context.Context, event any, attributes ...Attribute) (*Sent, error) {
	id, line, err := lineOf(event, attributes)
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
			return nil, fmt.Errorf("hifi: memory is full of waiting events (%d bytes): %w", s.options.MemoryBytesMax, ctx.Err())
		}
	}
}

// take adds a line to the open batch; without room, it returns a channel to wait on.
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

// Close takes no more events, and sends the rest until the context ends. If the context ends too early, the
// remaining events get their fates, and Close returns the context's error.
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

// Check asks the gateway whether it would accept an event.
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

// seal closes the open batch and starts to send it; the caller has the lock.
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

// settleAll settles batch after batch until there is none.
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
		return "", fmt.Errorf("%w: %q is not an address of a gateway: write it as http://127.0.0.1:8080 or https://hifi.example", ErrSetup, gateway)
	}
	if parts.User != nil || parts.RawQuery != "" || parts.Fragment != "" {
		return "", fmt.Errorf("%w: %q is more than an address: pass the key as an option", ErrSetup, parts.Redacted())
	}
	return strings.TrimSuffix(strings.TrimRight(parts.Scheme+"://"+parts.Host+parts.Path, "/"), "/v1"), nil
}
