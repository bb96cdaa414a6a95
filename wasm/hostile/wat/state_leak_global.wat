;; Counts its calls in a global and changes its answer.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (global $n (mut i32) (i32.const 0))
  (data (i32.const 128) "{\"outcome\":\"FAILED\",\"class\":\"rate_limit\"}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (global.set $n (i32.add (global.get $n) (i32.const 1)))
    (if (result i64) (i32.gt_u (global.get $n) (i32.const 2)) (then (i64.const 549755813929)) (else (i64.const 274877906981))))
)
