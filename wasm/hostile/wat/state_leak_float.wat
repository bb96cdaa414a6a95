;; Counts its calls in a float global.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (global $n (mut f64) (f64.const 0))
  (data (i32.const 128) "{\"outcome\":\"FAILED\",\"class\":\"rate_limit\"}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (global.set $n (f64.add (global.get $n) (f64.const 1)))
    (if (result i64) (f64.gt (global.get $n) (f64.const 2)) (then (i64.const 549755813929)) (else (i64.const 274877906981))))
)
