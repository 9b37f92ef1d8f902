// The parameter list of a kernel, deduced: count, sizes, which are pointers, and a call from an array of addresses.
#pragma once

template <class T>
struct sim_is_pointer {
  static constexpr unsigned char value = 0;
};
template <class T>
struct sim_is_pointer<T *> {
  static constexpr unsigned char value = 1;
};
template <class T>
struct sim_is_pointer<T *__restrict> {
  static constexpr unsigned char value = 1;
};
template <class T>
struct sim_no_const {
  typedef T type;
};
template <class T>
struct sim_no_const<const T> {
  typedef T type;
};
template <unsigned... I>
struct sim_indices {};
template <unsigned N, unsigned... I>
struct sim_count : sim_count<N - 1, N - 1, I...> {};
template <unsigned... I>
struct sim_count<0, I...> {
  typedef sim_indices<I...> type;
};

template <class F, F f>
struct sim_traits;
template <class... A, void (*f)(A...)>
struct sim_traits<void (*)(A...), f> {
  static constexpr unsigned n = sizeof...(A);
  static constexpr unsigned sizes[n + 1] = {(unsigned)sizeof(A)..., 0u};
  static constexpr unsigned char pointers[n + 1] = {sim_is_pointer<typename sim_no_const<A>::type>::value..., 0};
  template <unsigned... I>
  static SIM_PLAIN void spread(void **p, sim_indices<I...>) {
    f(*(typename sim_no_const<A>::type *)p[I]...);
  }
  static SIM_PLAIN void call(void **p) { spread(p, typename sim_count<n>::type()); }
};
