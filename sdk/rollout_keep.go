package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// What the store keeps of rollouts. The candidate itself is kept beside its
// state: a folder that is edited meanwhile, or is gone, must not change what is
// on trial, and another machine has no such path.
//
//	rollout/now                        the latest rollout
//	rollout/bundle/<id>                the archive of its candidate
//	rollout/figures/<id>/<home>/<slot> what one process knows of its stage
const (
	rolloutKey     = "rollout/now"
	rolloutBundles = "rollout/bundle/"
	rolloutFigures = "rollout/figures/"
)

// maxCandidate bounds the archive that is kept.
const maxCandidate = 16 << 20

// readRollout reads the latest rollout; nil when there never was one.
func (c *Client) readRollout(ctx context.Context) (*Rollout, state.Rev, error) {
	docs, err := c.store.Load(ctx, rolloutKey)
	if err != nil {
		return nil, state.Rev{}, fmt.Errorf("read the rollout: %w", err)
	}
	if len(docs) == 0 || len(docs[0].Data) == 0 {
		return nil, state.Rev{}, nil
	}
	var r Rollout
	if err := json.Unmarshal(docs[0].Data, &r); err != nil || r.V != 1 {
		return nil, docs[0].Rev, fmt.Errorf("read the rollout: its state is none that this version knows: %w", err)
	}
	return &r, docs[0].Rev, nil
}

// step writes the evidence of a step and then takes it. Of two processes that
// take the same step at once one wins, and the other is told.
func (c *Client) step(ctx context.Context, from, to *Rollout, was, reason string) error {
	report := engine.TrialReport{}
	if from.Active() && from.ID == to.ID {
		r, err := c.figures(ctx, from)
		if err != nil {
			return err
		}
		report = *r
	}
	to.Reason = reason
	next := to.Stage.String()
	if to.State == "rolled_back" {
		next = "off"
	}
	s := engine.RolloutStep{ID: to.ID, By: to.By, Why: to.Why, Reason: reason, From: was, To: next,
		InForce: to.InForce, Candidate: to.Candidate, Report: report}
	if to.Stage == taxonomy.ModeCanary {
		s.BasisPoints = to.BasisPoints
	}
	var err error
	if to.Receipt, err = c.engine.NoteRollout(ctx, s); err != nil {
		return err
	}
	if err = c.writeRollout(ctx, from, to); err == nil {
		return nil
	}
	s.Reason, s.From, s.To = "not_taken", next, was
	_, nerr := c.engine.NoteRollout(ctx, s)
	return fmt.Errorf("rollout %s: %w", to.ID, joined(err, nerr))
}

func joined(err, more error) error {
	if more == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, more)
}

// writeRollout replaces what was read.
func (c *Client) writeRollout(ctx context.Context, from, to *Rollout) error {
	data, err := json.Marshal(to)
	if err != nil {
		return err
	}
	moved := false
	_, err = c.store.Update(ctx, rolloutKey, func(d state.Doc) ([]byte, bool) {
		var now Rollout
		moved = len(d.Data) > 0 && (from == nil || json.Unmarshal(d.Data, &now) != nil || now.ID != from.ID || now.Step != from.Step)
		if moved {
			return nil, false
		}
		return data, true
	})
	if moved {
		return fmt.Errorf("%w: somebody else took a step at the same time; look at it again", ErrRefused)
	}
	return err
}

// readCandidate reads the bundle on trial, and makes the copy that is kept.
func (c *Client) readCandidate(req *StartRequest) (b *policies.Bundle, raw []byte, err error) {
	o := policies.Options{Name: req.Source}
	if o.Keys, err = readKeys(c.config.Policies.Keys); err != nil {
		return nil, nil, err
	}
	switch raw = req.Archive; {
	case len(raw) > 0:
		b, err = policies.OpenArchive(raw, o)
	case req.Path == "":
		return nil, nil, fmt.Errorf("start a rollout: %w: it names no candidate", ErrRefused)
	default:
		if b, err = policies.OpenPath(req.Path, o); err == nil {
			raw, err = Archived(b, req.Path)
		}
	}
	if err == nil && len(raw) > maxCandidate {
		err = fmt.Errorf("keep a copy of %s: it has %d bytes, and the most is %d", b.Source, len(raw), maxCandidate)
	}
	return b, raw, err
}

// Archived is a bundle as one archive: the file itself where it is one of ours,
// so that a signature stays on it.
func Archived(b *policies.Bundle, path string) ([]byte, error) {
	if b.Archive {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if _, err := policies.OpenArchive(raw, policies.Options{}); err == nil {
			return raw, nil
		}
	}
	return b.Build(policies.BuildOptions{Tests: true}) // a folder, or an archive with its settings beside it
}

func (c *Client) storeCandidate(ctx context.Context, id string, raw []byte) error {
	_, err := c.store.Update(ctx, rolloutBundles+id, func(state.Doc) ([]byte, bool) { return raw, true })
	if err != nil {
		return fmt.Errorf("keep a copy of the candidate: %w", err)
	}
	return nil
}

// Candidate is the bundle that a rollout has on trial, as its copy was kept.
func (c *Client) Candidate(ctx context.Context, r *Rollout) (*policies.Bundle, error) {
	docs, err := c.store.Load(ctx, rolloutBundles+r.ID)
	if err != nil {
		return nil, fmt.Errorf("rollout %s: read its candidate: %w", r.ID, err)
	}
	if len(docs) == 0 || len(docs[0].Data) == 0 {
		return nil, fmt.Errorf("rollout %s: its candidate is not in the store", r.ID)
	}
	b, err := policies.OpenArchive(docs[0].Data, policies.Options{Name: r.Source})
	if err != nil {
		return nil, fmt.Errorf("rollout %s: %w", r.ID, err)
	}
	return b, nil
}

// loadCandidate compiles the copy. What does not have the version of the rollout
// is not what was put on trial.
func (c *Client) loadCandidate(ctx context.Context, r *Rollout, prev *loaded) (*loaded, error) {
	b, err := c.Candidate(ctx, r)
	if err != nil {
		return nil, err
	}
	// It passed its tests when the rollout began, and its version says that it is
	// the same.
	l, err := compileAs(ctx, b, taxonomy.ModeEnforce, prev, &c.parts, rego.Options{KeepInput: c.config.ReplayInputs(), Mismatch: c.mismatch})
	if err != nil {
		return nil, err
	}
	if !same(l.policy.Version, r.Candidate) {
		l.letGo()
		return nil, fmt.Errorf("rollout %s: this program reads its candidate as %s, and %s is on trial; run the same version of fusebox everywhere", r.ID, l.policy.Version, r.Candidate)
	}
	return l, nil
}

// kept are the figures of one process.
type kept struct {
	Stage  taxonomy.Mode      `json:"stage"`
	Report engine.TrialReport `json:"report"`
}

func (c *Client) figuresKey(id string) string {
	return rolloutFigures + id + "/" + c.home + "/" + strconv.Itoa(c.slot)
}

// keepFigures writes what this process knows, so that a restart goes on from it.
func (c *Client) keepFigures(ctx context.Context) error {
	c.reload.Lock()
	defer c.reload.Unlock()
	// Whoever closes may have no patience left; the figures are worth a moment.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return c.writeFigures(ctx)
}

func (c *Client) writeFigures(ctx context.Context) error {
	r := c.trial.at
	if r == nil || c.trial.policy == nil {
		return nil
	}
	mine := kept{Stage: r.Stage, Report: c.ownFigures()}
	data, err := json.Marshal(mine)
	if err != nil || string(data) == c.trial.written {
		return err
	}
	_, err = c.store.Update(ctx, c.figuresKey(r.ID), func(state.Doc) ([]byte, bool) { return data, false })
	if err != nil {
		return fmt.Errorf("keep the figures of rollout %s: %w", r.ID, err)
	}
	c.trial.written = string(data)
	return nil
}

// ownFigures are those of this process: an earlier life's, and since then.
func (c *Client) ownFigures() engine.TrialReport {
	r, _ := c.engine.TrialReport()
	if c.trial.base != nil {
		r.Add(c.trial.base)
	}
	return r
}

// figures are those of the stage, over all processes.
func (c *Client) figures(ctx context.Context, r *Rollout) (*engine.TrialReport, error) {
	out := engine.TrialReport{ID: r.ID, Stage: r.Stage, InForce: r.InForce, Candidate: r.Candidate, Differences: map[string]int64{}}
	if r.Stage == taxonomy.ModeCanary {
		out.BasisPoints = r.BasisPoints
	}
	own := c.figuresKey(r.ID)
	live := c.trial.policy != nil && c.trial.at != nil && c.trial.at.ID == r.ID && c.trial.at.Stage == r.Stage
	err := c.store.Each(ctx, rolloutFigures+r.ID+"/", func(d state.Doc) error {
		var k kept
		if d.Key == own && live || len(d.Data) == 0 {
			return nil
		}
		if err := json.Unmarshal(d.Data, &k); err != nil {
			return fmt.Errorf("%s: %w", d.Key, err)
		}
		if k.Stage == r.Stage {
			out.Add(&k.Report)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the figures of rollout %s: %w", r.ID, err)
	}
	if live {
		mine := c.ownFigures()
		out.Add(&mine)
	}
	return &out, nil
}

// earlier are the figures that an earlier life of this slot left of this stage.
func (c *Client) earlier(ctx context.Context, r *Rollout) (*engine.TrialReport, error) {
	docs, err := c.store.Load(ctx, c.figuresKey(r.ID))
	if err != nil || len(docs) == 0 || len(docs[0].Data) == 0 {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(docs[0].Data, &k); err != nil {
		return nil, err
	}
	if k.Stage != r.Stage {
		return nil, nil
	}
	k.Report.LowQuality = nil // these circuits are read back from the store
	return &k.Report, nil
}
