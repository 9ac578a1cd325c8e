package hifi_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"

	hifi "github.com/hifi-streams/hifi/clients/go"
)

func ExampleSender() {
	ctx, gateway := context.Background(), os.Getenv("HIFI_GATEWAY")
	sender, err := hifi.NewSender(gateway, "orders", hifi.Options{}) // the key: HIFI_API_KEY
	if err != nil {
		log.Fatal(err)
	}
	sent, err := sender.Send(ctx, map[string]any{"type": "sale", "price": 5}, hifi.ID("go-example"))
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := sent.Outcome(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome.Fate)
	if err := sender.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: accepted
}

// The README and the docs must show only code that this example runs.
func TestTheReadmesShowTheExample(t *testing.T) {
	run, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"README.md", "../../docs/clients.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(text)
		if shown == nil {
			t.Fatalf("%s shows nothing", page)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(shown[1])), "\n") {
			line = strings.Replace(strings.TrimSpace(line), `"http://127.0.0.1:8080"`, "gateway", 1)
			if !strings.Contains(string(run), line) {
				t.Errorf("%s shows %q, which is not run", page, line)
			}
		}
	}
}
