! Waves on a cubic grid whose fields lie in COMMON blocks, as in many programs of computing centres; sums of what came of them are
! printed. N: points on a side.
program fields
  implicit none
  integer, parameter :: n = N, steps = 6
  real(8) :: before, now, after
  common /grid/ before(n, n, n), now(n, n, n), after(n, n, n)
  real(8) :: speed
  common /medium/ speed(n, n, n)
  integer :: i, j, k, t

  do k = 1, n
    do j = 1, n
      do i = 1, n
        speed(i, j, k) = 0.05d0 + 0.1d0 * mod(i * 7 + j * 13 + k * 29, 64) / 64
        now(i, j, k) = mod(i * j + k, 1000) / 1000d0
        before(i, j, k) = now(i, j, k)
      end do
    end do
  end do
  do t = 1, steps
    do k = 2, n - 1
      do j = 2, n - 1
        do i = 2, n - 1
          after(i, j, k) = 2 * now(i, j, k) - before(i, j, k) + speed(i, j, k) * (now(i - 1, j, k) + now(i + 1, j, k) &
            + now(i, j - 1, k) + now(i, j + 1, k) + now(i, j, k - 1) + now(i, j, k + 1) - 6 * now(i, j, k))
        end do
      end do
    end do
    before = now
    now(2:n - 1, 2:n - 1, 2:n - 1) = after(2:n - 1, 2:n - 1, 2:n - 1)
    print '(i3, 3es24.16)', t, sum(now), maxval(abs(now)), sum(now * before)
  end do
  open (unit=10, file='fields.dat', form='unformatted', access='stream')
  write (10) now
  rewind (10)
  after = 0
  read (10) after
  close (10)
  print *, all(after == now)
end program fields
