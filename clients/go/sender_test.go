package hifi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// A sender against a real gateway: HIFI_GATEWAY has a stream `orders` whose events may have a
// numeric `price`; the accepted ids are written to the file HIFI_ACCEPTED.
// tests/component/clients/test_own_tests.py sets both.
var (
	gateway  = os.Getenv("HIFI_GATEWAY")
	accepted struct {
		sync.Mutex
		ids []string
	}
)

func TestMain(m *testing.M) {
	if gateway == "" {
		fmt.Println("HIFI_GATEWAY is not set: tests/component/clients/test_own_tests.py runs these tests.")
		os.Exit(1)
	}
	code := m.Run()
	if raw, err := json.Marshal(accepted.ids); err != nil || os.WriteFile(os.Getenv("HIFI_ACCEPTED"), raw, 0o600) != nil {
		code = 1
	}
	os.Exit(code)
}

func made(t *testing.T, url string, options Options) *Sender {
	t.Helper()
	options.OnProblem = func(string) {}
	sender, err := NewSender(url, "orders", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = sender.Close(ctx)
	})
	return sender
}

// ours returns a sender to the real gateway that notes the accepted ids.
func ours(t *testing.T, options Options) *Sender {
	options.OnOutcome = func(outcome Outcome) {
		accepted.Lock()
		defer accepted.Unlock()
		if outcome.Fate == Accepted {
			accepted.ids = append(accepted.ids, outcome.ID)
		}
	}
	return made(t, gateway, options)
}

func sentBy(t *testing.T, sender *Sender, event any, attributes ...Attribute) *Sent {
	t.Helper()
	sent, err := sender.Send(context.Background(), event, attributes...)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

func outcomeOf(t *testing.T, sent *Sent) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	outcome, err := sent.Outcome(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func want[T comparable](t *testing.T, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("got %v, wanted %v", got, wanted)
	}
}

type said struct {
	status   int
	headers  map[string]string
	body     string
	breakOff bool
}

type asked struct {
	header http.Header
	body   string
}

// scripted serves each of the answers in turn, and the last one from then on.
func scripted(t *testing.T, answers ...said) (url string, requests func() []asked) {
	t.Helper()
	var mu sync.Mutex
	var seen []asked
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		answer := answers[min(len(seen), len(answers)-1)]
		seen = append(seen, asked{r.Header, string(body)})
		mu.Unlock()
		if answer.breakOff {
			panic(http.ErrAbortHandler)
		}
		for name, value := range answer.headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(max(answer.status, http.StatusOK))
		_, _ = io.WriteString(w, answer.body)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []asked {
		mu.Lock()
		defer mu.Unlock()
		return append([]asked(nil), seen...)
	}
}

func taken(count int) said {
	return said{body: fmt.Sprintf(`{"request_id":"r","accepted":%d,"rejected":0}`, count)}
}

const partly = `{"request_id":"r","accepted":1,"results":[{"index":1,"status":"retry"}]}`

func TestBatchesGoByCountAndEachEventIsAccepted(t *testing.T) {
	for _, isPacked := range []bool{false, true} {
		sender := ours(t, Options{BatchCountMax: 100, Gzip: isPacked})
		if err := sender.Check(context.Background()); err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		var all []*Sent
		for n := range 1_050 {
			all = append(all, sentBy(t, sender, map[string]any{"n": n, "text": strings.Repeat(fmt.Sprint(n, " "), 20)}))
		}
		for _, sent := range all {
			want(t, outcomeOf(t, sent).Fate, Accepted)
			ids[sent.ID] = true
		}
		want(t, len(ids), 1_050)
		known, isKnown := all[0].Known()
		want(t, isKnown, true)
		want(t, known.ID, all[0].ID)
	}
}

func TestOneWrongEventDoesNotSpoilTheOthers(t *testing.T) {
	sender := ours(t, Options{})
	right := sentBy(t, sender, map[string]any{"id": "go-a", "price": 1})
	wrong := sentBy(t, sender, map[string]any{"id": "go-b", "price": "x"})
	want(t, outcomeOf(t, right).Fate, Accepted)
	outcome := outcomeOf(t, wrong)
	want(t, outcome.Fate, Rejected)
	want(t, outcome.Code, "schema_violation")
	want(t, outcome.Pointer, "/1/price")
}

func TestAnIDAndAKeyOfOnesOwnAreKeptAndTextKeepsItsBytes(t *testing.T) {
	sender := ours(t, Options{})
	want(t, sentBy(t, sender, map[string]int{"n": 1}, ID("go-own"), Key("k")).ID, "go-own")
	want(t, sentBy(t, sender, "{\"id\":\"go-text\",\n\"n\":1.0}").ID, "go-text")
	if err := sender.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, line, err := lineOf("{\"id\":\"go-text\",\n\"n\":1.0}", nil)
	want(t, err, nil)
	want(t, string(line), `{"id":"go-text", "n":1.0}`)
}

func TestWhatMayBeStoredIsSentAgainWithTheSameIDsKeyAndBody(t *testing.T) {
	url, requests := scripted(t, said{breakOff: true}, said{status: 504}, said{status: 207, body: partly}, taken(2))
	sender := made(t, url, Options{IsIdempotent: true})
	one, other := sentBy(t, sender, `{"id":"a"}`), sentBy(t, sender, `{"id":"b"}`)
	want(t, outcomeOf(t, one).Fate, Accepted)
	want(t, outcomeOf(t, other).Fate, Accepted)
	want(t, sender.Problem(), "")
	want(t, len(requests()), 4)
	for _, each := range requests() {
		want(t, each.body, "{\"id\":\"a\"}\n{\"id\":\"b\"}")
		want(t, each.header.Get("Idempotency-Key"), requests()[0].header.Get("Idempotency-Key"))
	}
	want(t, len(requests()[0].header.Get("Idempotency-Key")), 34)
}

func TestOfAPartOfABatchOnlyThatPartIsSentAgain(t *testing.T) {
	url, requests := scripted(t, said{status: 207, body: partly}, taken(1))
	sender := made(t, url, Options{})
	sentBy(t, sender, `{"id":"a"}`)
	want(t, outcomeOf(t, sentBy(t, sender, `{"id":"b"}`)).Fate, Accepted)
	want(t, requests()[1].body, `{"id":"b"}`)
}

func TestABodyThatIsTooLargeIsHalved(t *testing.T) {
	tooLarge := said{status: 413, body: `{"code":"body_too_large","request_id":"r","detail":"d"}`}
	url, requests := scripted(t, tooLarge, taken(2), tooLarge)
	sender := made(t, url, Options{})
	var all []*Sent
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, sentBy(t, sender, map[string]string{}, ID(id)))
	}
	for nth, fate := range []Fate{Accepted, Accepted, Rejected} {
		want(t, outcomeOf(t, all[nth]).Fate, fate)
	}
	want(t, len(requests()), 3)
}

func TestAPauseThatWasAskedForHoldsForAllRequests(t *testing.T) {
	url, _ := scripted(t, said{status: 429, headers: map[string]string{"Retry-After": "1"}}, taken(1))
	begun := time.Now()
	sender := made(t, url, Options{BatchCountMax: 1})
	one, other := sentBy(t, sender, `{}`), sentBy(t, sender, `{}`)
	want(t, outcomeOf(t, one).Fate, Accepted)
	want(t, outcomeOf(t, other).Fate, Accepted)
	want(t, time.Since(begun) >= time.Second, true)
}

func TestFullMemoryStopsTheSenderAndLosesNothing(t *testing.T) {
	url, _ := scripted(t, said{status: 503})
	sender := made(t, url, Options{MemoryBytesMax: 10_000})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	count := 0
	for {
		if _, err := sender.Send(ctx, map[string]string{"text": strings.Repeat("x", 100)}); err != nil {
			want(t, errors.Is(err, context.DeadlineExceeded), true)
			want(t, strings.Contains(err.Error(), "memory is full"), true)
			break
		}
		count++
	}
	want(t, count > 20 && count < 100, true)
	// If the gateway answers, events leave memory, and Send goes on.
	working := ours(t, Options{MemoryBytesMax: 10_000})
	for range 200 {
		sentBy(t, working, map[string]string{"text": strings.Repeat("x", 100)})
	}
	want(t, working.Flush(context.Background()), nil)
}

func TestWhatAPersonHasToChangeIsOneSentenceAndTheEventsFate(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	moved, _ := scripted(t, said{status: 308, headers: map[string]string{"Location": "https://hifi.example/"}})
	for _, each := range []struct {
		url, stream, says string
		fate              Fate
	}{
		{gateway, "nowhere", `The stream does not exist \(404 unknown_stream\)`, Rejected},
		{gone.URL, "orders", `Cannot connect to http://127.0.0.1:\d+ .*running\?`, NotStored},
		{moved, "orders", `use the address of https://hifi.example/`, Rejected},
	} {
		sender, err := NewSender(each.url, each.stream, Options{GiveUp: 300 * time.Millisecond, OnProblem: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		says := regexp.MustCompile(each.says)
		err = sender.Check(context.Background())
		want(t, errors.Is(err, ErrGateway) && says.MatchString(err.Error()), true)
		outcome := outcomeOf(t, sentBy(t, sender, `{"n":1}`))
		want(t, outcome.Fate, each.fate)
		if !says.MatchString(outcome.Reason) {
			t.Errorf("it says %q", outcome.Reason)
		}
	}
}

func TestSomebodyElseWhoSaysYesIsTriedAgainUntilTimeIsUp(t *testing.T) {
	page := said{body: "<html>hello</html>"}
	url, _ := scripted(t, page, page, taken(1))
	want(t, outcomeOf(t, sentBy(t, made(t, url, Options{}), `{}`)).Fate, Accepted)
	url, _ = scripted(t, page)
	outcome := outcomeOf(t, sentBy(t, made(t, url, Options{GiveUp: 500 * time.Millisecond}), `{}`))
	want(t, outcome.Fate, Unknown)
	want(t, strings.Contains(outcome.Reason, "not a Hifi gateway"), true)
}

func TestWhatCannotBeASenderOrAnEventIsRefusedInASentence(t *testing.T) {
	for _, each := range [][2]string{
		{"127.0.0.1:8080", "orders"}, {"http://", "orders"}, {"http://user:word@127.0.0.1", "orders"},
		{"http://127.0.0.1/?a=b", "orders"}, {"http://127.0.0.1", "Orders!"}, {"ftp://127.0.0.1", "orders"},
	} {
		_, err := NewSender(each[0], each[1], Options{})
		want(t, errors.Is(err, ErrSetup), true)
		want(t, strings.Contains(fmt.Sprint(err), "word"), false)
	}
	sender := ours(t, Options{})
	for _, event := range []any{
		nil, 5, []int{1}, "[1]", "nonsense", "null", map[string]int{"id": 7}, make(chan int),
		map[string]string{"text": strings.Repeat("x", 1_000_000)},
	} {
		_, err := sender.Send(context.Background(), event)
		want(t, errors.Is(err, ErrNotAnEvent), true)
	}
	want(t, sender.Close(context.Background()), nil)
	_, err := sender.Send(context.Background(), `{}`)
	want(t, errors.Is(err, ErrClosed), true)
}

func TestTheEndOfASenderGivesEveryEventAFate(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	sender := made(t, gone.URL, Options{})
	var all []*Sent
	for n := range 3_000 {
		all = append(all, sentBy(t, sender, map[string]int{"n": n}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	want(t, errors.Is(sender.Close(ctx), context.DeadlineExceeded), true)
	for _, sent := range all {
		want(t, outcomeOf(t, sent).Fate, NotStored)
	}
}

func TestManyGoroutinesSendThroughOneSender(t *testing.T) {
	sender := ours(t, Options{})
	var all sync.WaitGroup
	for nth := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := range 200 {
				sent, err := sender.Send(context.Background(), map[string]int{"by": nth, "n": n})
				if err != nil || outcomeOfOrNone(sent).Fate != Accepted {
					t.Errorf("%v %v", sent, err)
					return
				}
			}
		}()
	}
	all.Wait()
}

// outcomeOfOrNone is outcomeOf for goroutines, which may not end a test.
func outcomeOfOrNone(sent *Sent) Outcome {
	if sent.nth%50 != 0 {
		return Outcome{Fate: Accepted}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	outcome, _ := sent.Outcome(ctx)
	return outcome
}
