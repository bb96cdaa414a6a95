package sdk

import (
	"context"
	"testing"
)

func open(t *testing.T, c Config, p Parts) *Client {
	t.Helper()
	if c.Data == "" {
		c.Data = t.TempDir()
	}
	client, err := Open(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestOpenDefault(t *testing.T) {
	c := open(t, Config{}, Parts{})
	s := c.PolicyStatus()
	t.Logf("%+v", s)
}
