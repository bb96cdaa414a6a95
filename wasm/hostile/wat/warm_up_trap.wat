;; Traps on its first, long document, with a mark left behind: a trap gives back
;; neither memory nor globals.
(module
  (memory (export "memory") 2)
  (global $mark (mut i32) (i32.const 0))
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (data (i32.const 128) "{\"outcome\":\"FAILED\",\"class\":\"rate_limit\"}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (if (i32.gt_u (local.get $n) (i32.const 2000)) (then (global.set $mark (i32.const 1)) unreachable))
    (if (result i64) (global.get $mark)
      (then (i64.const 549755813929))
      (else (i64.const 274877906981)))))
