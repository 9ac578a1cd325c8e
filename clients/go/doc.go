// Package hifi sends events to a stream of Hifi. It needs only the standard library.
//
//	sender, err := hifi.NewSender("http://127.0.0.1:8080", "orders", hifi.Options{})
//	sent, err := sender.Send(ctx, map[string]any{"type": "sale", "price": 5})
//	outcome, err := sent.Outcome(ctx)
//	err = sender.Close(ctx)
//
// During an outage an event is retried until the gateway has reported its outcome, or until
// Options.GiveUp has passed. Every event gets exactly one Fate.
package hifi
