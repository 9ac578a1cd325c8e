package hifi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

const (
	// The gateway refuses a ratio above 100 as a bomb (HIFI_GATEWAY_RATIO_MAX); from 90 on, a body is sent
	// uncompressed.
	ratioMax       = 90
	packedBytesMin = 1_000
	// Enough for an entry about each event of the largest request.
	answerBytesMax = 16_000_000
)

// attempts is a batch or part of one, with the results of its attempts so far.
type attempts struct {
	part        *batch
	key         string
	mayBeStored bool
}

// settle tries until every event of a batch has its fate.
func (s *Sender) settle(whole *batch) {
	ctx, cancel := context.WithDeadline(s.life, whole.born.Add(s.options.GiveUp))
	defer cancel()
	waiting := []attempts{{part: whole, key: s.newKey()}}
	for len(waiting) > 0 {
		next := waiting[len(waiting)-1]
		waiting = append(waiting[:len(waiting)-1], s.try(ctx, next)...)
	}
}

// try sends one part until it is settled; it returns smaller parts to try instead.
func (s *Sender) try(ctx context.Context, one attempts) []attempts {
	var last *answer
	for s.pace.turn(ctx) {
		read := s.attempt(ctx, one)
		last = &read
		one.mayBeStored = one.mayBeStored || read.mayBeStored
		count := len(one.part.lines)
		switch {
		case read.isToBeHalved && count > 1:
			first, second := places(count)[:(count+1)/2], places(count)[(count+1)/2:]
			return []attempts{
				{one.part.of(second), s.newKey(), one.mayBeStored},
				{one.part.of(first), s.newKey(), one.mayBeStored},
			}
		case read.isSetup:
			s.giveUp(one, last)
			return nil
		case len(read.again) == 0:
			s.tell(one.part, read)
			return nil
		case len(read.again) < count && one.key == "":
			// An Idempotency-Key is for one request, so with a key the batch must stay whole.
			s.tell(one.part, read)
			one.part = one.part.of(read.again)
		}
	}
	s.giveUp(one, last)
	return nil
}

func (s *Sender) attempt(ctx context.Context, one attempts) answer {
	read := s.exchange(ctx, one.part.lines, "", one.key)
	if len(read.again) == 0 {
		// Any answer proves that the gateway works, whatever the fate of these events.
		s.pace.wentWell()
	} else if about := s.about(read); s.pace.failed(about, read.wait) {
		s.options.OnProblem(about)
	}
	return read
}

// exchange sends one request and reads its answer.
func (s *Sender) exchange(ctx context.Context, lines [][]byte, query, key string) answer {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	var isSent atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { isSent.Store(true) }}
	body := bytes.Join(lines, []byte{'\n'})
	packed := s.packed(body)
	request, err := http.NewRequestWithContext(
		httptrace.WithClientTrace(ctx, trace), http.MethodPost, s.address+query, bytes.NewReader(packed))
	if err == nil {
		s.setHeaders(request, key, len(packed) < len(body))
	}
	unknown := func(err error) answer {
		problem := fmt.Sprintf("%s did not answer (%v).", s.base, err)
		if !isSent.Load() {
			problem = fmt.Sprintf("Cannot connect to %s (%v): is the gateway running?", s.base, err)
		}
		return answer{again: places(len(lines)), mayBeStored: isSent.Load(), wait: -1, problem: problem}
	}
	if err != nil {
		return unknown(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return unknown(err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return unknown(err)
	}
	read := readAnswer(response.StatusCode, response.Header, said, len(lines))
	read.isRehearsed = response.StatusCode == http.StatusOK && membersOf(said)["dry_run"] == true
	return read
}

func (s *Sender) setHeaders(request *http.Request, key string, isPacked bool) {
	request.Header.Set("Content-Type", "application/x-ndjson")
	request.Header.Set("Accept", "application/json")
	if s.options.Key != "" {
		request.Header.Set("Authorization", "Bearer "+s.options.Key)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", `"`+key+`"`)
	}
	if isPacked {
		request.Header.Set("Content-Encoding", "gzip")
	}
}

// packed returns the compressed body, or the body itself if compression does not help or would look
// like a bomb.
func (s *Sender) packed(body []byte) []byte {
	if !s.options.Gzip || len(body) < packedBytesMin {
		return body
	}
	var small bytes.Buffer
	writer := gzip.NewWriter(&small)
	_, failed := writer.Write(body)
	if writer.Close() != nil || failed != nil || small.Len() >= len(body) || small.Len()*ratioMax <= len(body) {
		return body
	}
	return small.Bytes()
}

func (s *Sender) newKey() string {
	if s.options.IsIdempotent {
		return randomHex(16)
	}
	return ""
}

func (s *Sender) about(read answer) string {
	if bytes.Contains([]byte(read.problem), []byte(s.base)) {
		return read.problem
	}
	return s.base + ": " + read.problem
}

// tell reports the known outcomes of a part, except for events to send again.
func (s *Sender) tell(part *batch, read answer) {
	isOpen := map[int]bool{}
	for _, nth := range read.again {
		isOpen[nth] = true
	}
	told := map[int]verdict{}
	for nth := range part.ids {
		said, isFinal := read.final[nth]
		switch {
		case isFinal:
			told[nth] = said
		case read.isToBeHalved:
			told[nth] = verdict{Rejected, read.code, s.about(read), ""}
		case !isOpen[nth]:
			told[nth] = verdict{fate: Accepted}
		}
	}
	s.say(part, told)
}

func (s *Sender) giveUp(one attempts, last *answer) {
	part, reason, code := one.part, or(s.pace.said(), "The sender was closed."), ""
	if last != nil {
		reason, code = s.about(*last), last.code
		if !last.isSetup && len(last.again) < len(part.lines) {
			s.tell(part, *last)
			part = part.of(last.again)
		}
	}
	fate := NotStored
	switch {
	case one.mayBeStored:
		fate = Unknown
	case last != nil && last.isSetup:
		fate = Rejected
	}
	told := map[int]verdict{}
	for nth := range part.ids {
		told[nth] = verdict{fate, code, reason, ""}
	}
	s.say(part, told)
}

func (s *Sender) say(part *batch, told map[int]verdict) {
	outcomes := map[int]Outcome{}
	for nth, said := range told {
		outcomes[part.place(nth)] = Outcome{part.ids[nth], said.fate, said.code, said.reason, said.pointer}
	}
	for _, outcome := range part.fates.tell(outcomes) {
		if s.options.OnOutcome != nil {
			s.options.OnOutcome(outcome)
		}
	}
}

// of returns a batch of some of the events.
func (b *batch) of(chosen []int) *batch {
	part := &batch{fates: b.fates, born: b.born}
	for _, nth := range chosen {
		part.lines, part.ids = append(part.lines, b.lines[nth]), append(part.ids, b.ids[nth])
		part.places = append(part.places, b.place(nth))
	}
	return part
}

func (b *batch) place(nth int) int {
	if b.places == nil {
		return nth
	}
	return b.places[nth]
}
