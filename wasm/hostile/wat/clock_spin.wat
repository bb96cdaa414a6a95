;; Waits for a clock that hardly moves.
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $now (param i32 i64 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (loop $l (drop (call $now (i32.const 0) (i64.const 1) (i32.const 16))) (br_if $l (i64.lt_u (i64.load (i32.const 16)) (i64.const 0x7fffffffffffffff))))
    (i64.const 0))
)
