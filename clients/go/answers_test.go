package hifi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// All clients share these cases.
func TestEachAnswerMeansWhatTheContractSays(t *testing.T) {
	raw, err := os.ReadFile("../contract/answers.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		What    string
		Status  int
		Headers map[string]string
		Body    string
		Count   int
		Want    struct {
			Final, Again []int
			MayBeStored  bool     `json:"may_be_stored"`
			IsSetup      bool     `json:"is_setup"`
			IsToBeHalved bool     `json:"is_to_be_halved"`
			WaitS        *float64 `json:"wait_s"`
			Says         string
		}
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 40 {
		t.Fatalf("there are only %d cases", len(cases))
	}
	for _, each := range cases {
		t.Run(fmt.Sprintf("%d %s", each.Status, each.What), func(t *testing.T) {
			header := http.Header{}
			for name, value := range each.Headers {
				header.Set(name, value)
			}
			read, want := readAnswer(each.Status, header, []byte(each.Body), each.Count), each.Want
			var final []int
			for nth := range read.final {
				final = append(final, nth)
			}
			slices.Sort(final)
			if !slices.Equal(final, want.Final) || !slices.Equal(read.again, want.Again) {
				t.Errorf("final %v, again %v; wanted %v and %v", final, read.again, want.Final, want.Again)
			}
			if read.mayBeStored != want.MayBeStored || read.isSetup != want.IsSetup || read.isToBeHalved != want.IsToBeHalved {
				t.Errorf("read %+v, wanted %+v", read, want)
			}
			if !strings.Contains(read.problem, want.Says) || (read.problem == "") != (want.Says == "") {
				t.Errorf("it says %q, wanted %q", read.problem, want.Says)
			}
			wait := time.Duration(-1)
			if want.WaitS != nil {
				wait = time.Duration(*want.WaitS * float64(time.Second))
			}
			if read.wait != wait {
				t.Errorf("waits %v, wanted %v", read.wait, wait)
			}
		})
	}
}
