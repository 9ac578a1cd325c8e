package hifi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Longer than any gateway asks for, so that a date in the far future does not stop a sender.
const retryAfterMax = 300 * time.Second

// answer has the results of a request's events: final has verdicts by place, again has the places to
// send again, and all other events were accepted.
type answer struct {
	final       map[int]verdict
	again       []int
	mayBeStored bool
	// The batch was refused because of one of its events, or because of its size.
	isToBeHalved bool
	// Every request gets the same answer until somebody changes a setting.
	isSetup bool
	// The pause that the gateway asks for; negative if it asks for none.
	wait          time.Duration
	problem, code string
	isRehearsed   bool
}

type verdict struct {
	fate                  Fate
	code, reason, pointer string
}

// readAnswer follows the gateway's contract (docs/api.md), and accepts a success only from a gateway:
// a proxy's 200 does not count.
func readAnswer(status int, header http.Header, body []byte, count int) answer {
	said := membersOf(body)
	if status == http.StatusNoContent && len(body) == 0 {
		return answer{wait: -1}
	}
	if accepted, ok := whole(said["accepted"]); ok && status == http.StatusOK && accepted == count && !isTrue(said["rejected"]) {
		return answer{wait: -1}
	}
	code, _ := said["code"].(string)
	wait, problem := retryAfter(header), sentence(status, header, said, code)
	if listed, fits := listedIn(said, count); fits {
		listed.wait, listed.code = wait, code
		if len(listed.again) > 0 {
			listed.problem = problem
		}
		return listed
	}
	named := code
	if named == "" {
		named = fmt.Sprintf("status_%d", status)
	}
	read := answer{wait: -1, problem: problem, code: named}
	switch {
	case isOfTheSetup(status):
		read.again, read.isSetup = places(count), true
	case isOfTheBatch(status) && code != "idempotency_key_reused":
		read.isToBeHalved = true
	case status >= 400 && status < 500 && !isNothingStored(status):
		read.final = map[int]verdict{}
		for nth := range places(count) {
			read.final[nth] = verdict{Rejected, named, problem, ""}
		}
	default:
		// This includes a success from another server, such as a proxy while the gateway is down.
		read.again, read.mayBeStored, read.wait = places(count), !isNothingStored(status), wait
	}
	return read
}

// isNothingStored reports whether nothing of the request was stored. With any other status,
// events may have been stored, unless the answer says otherwise.
func isNothingStored(status int) bool {
	return status == 408 || status == 409 || status == 425 || status == 429 || status == 503
}

func isOfTheBatch(status int) bool { return status == 400 || status == 413 || status == 422 }

func isOfTheSetup(status int) bool {
	switch status {
	case 401, 403, 404, 405, 410, 421:
		return true
	}
	return status >= 300 && status < 400
}

// listedIn reads the entries of events that were not accepted, and reports whether they match the request.
func listedIn(said map[string]any, count int) (answer, bool) {
	results, isList := said["results"].([]any)
	accepted, isNumber := whole(said["accepted"])
	if !isList || !isNumber {
		return answer{}, false
	}
	read, taken := answer{final: map[int]verdict{}}, 0
	seen := map[int]bool{}
	for _, each := range results {
		entry, _ := each.(map[string]any)
		index, isNumber := whole(entry["index"])
		if !isNumber || index < 0 || index >= count {
			return answer{}, false
		}
		switch status, _ := entry["status"].(string); status {
		case "accepted":
			taken++
			continue
		case "rejected":
			read.final[index] = verdict{Rejected, text(entry["code"]), text(entry["detail"]), text(entry["pointer"])}
		default:
			read.again = append(read.again, index)
			read.mayBeStored = read.mayBeStored || status != "retry"
		}
		seen[index] = true
	}
	open := len(results) - taken
	return read, len(seen) == open && accepted+open == count
}

// sentence returns a sentence about the answer for people.
func sentence(status int, header http.Header, said map[string]any, code string) string {
	where := strings.TrimSpace(fmt.Sprintf("%d %s", status, code))
	detail := text(said["detail"])
	if detail == "" {
		detail = text(said["title"])
	}
	detail = strings.TrimSuffix(detail, ".")
	_, isOurs := said["request_id"]
	switch {
	case status == 401:
		return fmt.Sprintf("The gateway does not know this key (%s): %s.", where, or(detail, "use another key"))
	case status == 403:
		return fmt.Sprintf("The key may not do this (%s): %s.", where, or(detail, "use another key"))
	case code == "unknown_stream":
		return fmt.Sprintf("The stream does not exist (%s): %s; `hifi streams put` makes it.", where, detail)
	case status >= 300 && status < 400:
		return fmt.Sprintf("The address redirects (%s): use the address of %s.", where, or(header.Get("Location"), "somewhere else"))
	case code != "":
		return fmt.Sprintf("The gateway says %s: %s.", where, detail)
	case isOurs:
		return fmt.Sprintf("Not all events were accepted (%s).", where)
	case status >= 500 || isNothingStored(status):
		return fmt.Sprintf("The server before the gateway answers %s: the gateway may be down.", where)
	}
	return fmt.Sprintf("The server is not a Hifi gateway (%s): check the address.", where)
}

// retryAfter is negative if the answer asks for no pause. A date is compared with the answer's own Date, as clocks differ.
func retryAfter(header http.Header) time.Duration {
	asked := strings.TrimSpace(header.Get("Retry-After"))
	wait := time.Duration(-1)
	if seconds, err := strconv.ParseUint(asked, 10, 64); err == nil {
		wait = time.Duration(min(seconds, uint64(retryAfterMax/time.Second))) * time.Second
	} else if until, err := http.ParseTime(asked); err == nil {
		now, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			return -1
		}
		wait = max(until.Sub(now), 0)
	}
	return min(wait, retryAfterMax)
}

func membersOf(body []byte) map[string]any {
	said := map[string]any{}
	if json.Unmarshal(body, &said) != nil {
		return map[string]any{}
	}
	return said
}

func whole(value any) (int, bool) {
	number, isNumber := value.(float64)
	return int(number), isNumber && number == float64(int(number))
}

// isTrue reports whether a value is neither absent, false, zero nor empty.
func isTrue(value any) bool {
	return value != nil && value != false && value != 0.0 && value != ""
}

func text(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func or(given, otherwise string) string {
	if given != "" {
		return given
	}
	return otherwise
}

func places(count int) []int {
	all := make([]int, count)
	for nth := range all {
		all[nth] = nth
	}
	return all
}
