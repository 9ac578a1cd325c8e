package hifi

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
)

// EventBytesMax is the gateway's default limit for the size of one event.
const EventBytesMax = 1_000_000

var (
	// An id has one random part and a count, so no other process makes the same ids.
	idBegin = randomHex(12)
	idCount atomic.Uint64
)

// Attribute sets the id or the ordering key of an event.
type Attribute struct{ member, value string }

// ID sets the event's id. Without it, the event's member `id` is used, or a new id is made.
func ID(id string) Attribute { return Attribute{"id", id} }

// Key sets the ordering key: events with the same key go to one Kafka partition, in order.
func Key(key string) Attribute { return Attribute{"partitionkey", key} }

// lineOf turns an event into a line of JSON with an id, which stays the same for every retry. An event
// given as text or bytes keeps its bytes except line breaks.
func lineOf(event any, attributes []Attribute) (id string, line []byte, err error) {
	raw, err := written(event)
	if err != nil {
		return "", nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return "", nil, fmt.Errorf("%w: an event must be an object: %.100s", ErrNotAnEvent, raw)
	}
	added := map[string]string{}
	for _, attribute := range attributes {
		added[attribute.member] = attribute.value
	}
	if _, isGiven := added["id"]; !isGiven {
		given, isThere := members["id"]
		switch {
		case !isThere || string(given) == "null":
			added["id"] = idBegin + "-" + strconv.FormatUint(idCount.Add(1), 16)
		case json.Unmarshal(given, &id) != nil:
			return "", nil, fmt.Errorf("%w: the id of an event must be a text, not %.100s", ErrNotAnEvent, given)
		}
	}
	if given, isGiven := added["id"]; isGiven {
		id = given
	}
	line = raw
	if len(added) > 0 {
		for member, value := range added {
			members[member], _ = json.Marshal(value)
		}
		if line, err = json.Marshal(members); err != nil {
			return "", nil, fmt.Errorf("%w: %w", ErrNotAnEvent, err)
		}
	}
	if len(line) > EventBytesMax {
		return "", nil, fmt.Errorf("%w: it has %d bytes, but may have only %d: send less, or a link to the rest",
			ErrNotAnEvent, len(line), EventBytesMax)
	}
	return id, line, nil
}

func written(event any) ([]byte, error) {
	switch given := event.(type) {
	case string:
		return oneLine([]byte(given)), nil
	case []byte:
		return oneLine(given), nil
	case json.RawMessage:
		return oneLine(given), nil
	}
	raw, err := json.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("%w: this cannot be written as JSON: %w", ErrNotAnEvent, err)
	}
	return raw, nil
}

// oneLine returns a copy without line breaks; JSON has them only between its tokens.
func oneLine(raw []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte{'\n'}, []byte{' '}), []byte{'\r'}, []byte{' '})
}

func randomHex(count int) string {
	random := make([]byte, count)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return hex.EncodeToString(random)
}
