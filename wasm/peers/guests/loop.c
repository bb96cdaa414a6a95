/* A tight loop: one xorshift step each time round. */
__attribute__((export_name("spin"))) unsigned spin(unsigned n) {
  unsigned x = 2463534242u;
  while (n--) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
  }
  return x;
}
